"""Runs a scenario and prints what came of it: round by round, or only where it came out otherwise than expected."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.cli.output import print_json, printable
from gangline.cli.policy_file import refuse_policy
from gangline.cli.scenario_file import read_scenario
from gangline.cli.toml_file import TomlFile
from gangline.cli.units import show_duration
from gangline.schemas.errors import GanglineError, UsageError
from gangline.simulator.scenario import ScenarioError
from gangline.simulator.scenario_check import Complaint, check, expects_something
from gangline.simulator.scenario_outcome import JobView, Outcome, RoundView
from gangline.simulator.scenario_run import run
from gangline.simulator.work import SECOND_US
from gangline.simulator.world import SimulationError

if TYPE_CHECKING:
    from rich.table import Table

COLOURS = {"running": "green", "succeeded": "green", "failed": "red", "rejected": "red", "stopping": "yellow"}
WIDTH = 200
"""Columns of a table that goes to a file or a pipe."""


class Unexpected(GanglineError):
    """A scenario came out otherwise than it expects."""


def outcome_of(path: Path) -> tuple[TomlFile, Outcome]:
    """Run a scenario. Raises UsageError with the line for one that cannot be."""
    file, scenario = read_scenario(path)
    refuse_policy(file, scenario.policy)
    try:
        return file, run(scenario)
    except ScenarioError as error:
        raise UsageError(file.located(error.path, str(error))) from error
    except SimulationError as error:
        raise UsageError(file.located((), str(error))) from error


def complaints(file: TomlFile, outcome: Outcome) -> list[str]:
    """Return what came out otherwise than expected, with file and line."""
    return [_told(file, complaint) for complaint in check(outcome)]


def _told(file: TomlFile, complaint: Complaint) -> str:
    return file.located(complaint.path, complaint.message)


def run_scenario(path: Path, *, check_only: bool, as_json: bool) -> None:
    """Run a scenario and print it. Raises Unexpected if something came out otherwise than it expects."""
    file, outcome = outcome_of(path)
    if check_only and not expects_something(outcome.scenario):
        raise UsageError(f"{path}: nothing is expected here that could be checked: write [[expect]]")
    wrong = complaints(file, outcome)
    if as_json:
        rounds = [] if check_only else list(outcome.views())
        print_json({"scenario": str(path), "rounds": rounds, "unexpected": wrong})
    elif not check_only:
        _print_rounds(outcome)
    if not as_json:
        for line in wrong:
            print(printable(line))
    if wrong:
        many = "1 thing" if len(wrong) == 1 else f"{len(wrong)} things"
        raise Unexpected(f"{path}: {many} came out otherwise than expected")
    if check_only and not as_json:
        print(f"{path}: as expected")


def _print_rounds(outcome: Outcome) -> None:
    """Print the rounds in which something changed."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    before: tuple[object, ...] | None = None
    for view in outcome.views():
        shown = (tuple((job.name, job.state, job.placement) for job in view.jobs), view.held, view.reserved)
        if shown == before and not view.victims and not view.refused:
            continue
        before = shown
        console.print(f"[bold]after {show_duration(view.at_s * SECOND_US) if view.at_s else '0s'}[/bold]")
        console.print(_table(view.jobs))
        for line in _notes(view):
            console.print(f"  {escape(printable(line))}")
        console.print()


def _table(jobs: Sequence[JobView]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("job", "state", "attempt", "on", "reason"):
        table.add_column(heading.upper(), overflow="fold")
    for job in jobs:
        table.add_row(
            Text(printable(job.name)),
            Text(job.state, style=COLOURS.get(job.state, "")),
            Text(str(job.attempts) if job.attempts else "-"),
            Text(printable(" ".join(job.placement)) or "-"),
            Text(printable(job.reason)),
        )
    return table


def _notes(view: RoundView) -> list[str]:
    notes = [
        f"{victim.name} is told to give way ({victim.reason})" + (f" to {victim.claimant}" if victim.claimant else "")
        for victim in view.victims
    ]
    notes += [f"held for {name}: {' '.join(shares)}" for name, shares in view.held.items()]
    notes += [f"reserved for {name}: {' '.join(nodes)}" for name, nodes in view.reserved.items()]
    return notes + [f"refused: {message}" for message in view.refused]
