"""`gangline simulate`: the real core in virtual time."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.place import JsonOption
from gangline.schemas.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    *,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", help="A TOML file: a cluster, a policy, jobs, and what happens when.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print only what comes out otherwise than the scenario expects.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Try out what the scheduler would decide, without a cluster.

    Example: gangline simulate --scenario what-if.toml
    """
    if scenario is None:
        raise UsageError("there is nothing to simulate: name a file with --scenario")
    from gangline.cli.scenario_output import run_scenario

    run_scenario(scenario, check_only=check, as_json=json)
