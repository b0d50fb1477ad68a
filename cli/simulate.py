"""`gangline simulate`: the real core in virtual time."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.place import JsonOption
from gangline.schemas.errors import UsageError

PoliciesOption = Annotated[
    list[Path] | None, typer.Option(help="A policy as TOML; repeat it to compare several [the default policy].")
]
KeepLogOption = Annotated[
    Path | None, typer.Option(help="Keep the log of the simulation in this new folder; with one policy only.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    ctx: typer.Context,
    trace: Annotated[
        Path | None, typer.Argument(help="A trace: CSV of Philly or openb, or gangline's folder with its log.")
    ] = None,
    *,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", help="A TOML file: a cluster, a policy, jobs, and what happens when.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print only what comes out otherwise than the scenario expects.")
    ] = False,
    mix: Annotated[bool, typer.Option("--mix", help="A month of four teams on 4,096 GPUs, drawn from a seed.")] = False,
    seed: Annotated[int, typer.Option(help="Of the mix.", min=0)] = 1,
    load: Annotated[float, typer.Option(help="GPU time that the mix asks for, as a part of what there is.")] = 1.0,
    days: Annotated[int | None, typer.Option(help="Stop after so many days [the mix 33, a trace at its end].")] = None,
    nodes: Annotated[int, typer.Option(help="Nodes for a Philly trace.", min=1)] = 512,
    node_gpus: Annotated[int, typer.Option(help="GPUs of each of them.", min=1)] = 8,
    pods: Annotated[int | None, typer.Option(help="Pods that they lie in [one for 32 nodes].", min=1)] = None,
    node_list: Annotated[Path | None, typer.Option(help="CSV of the nodes for an openb trace.")] = None,
    divide: Annotated[int, typer.Option(help="How many times as fast the jobs of a trace arrive.", min=1)] = 1,
    pooled: Annotated[bool, typer.Option("--pooled", help="Give the jobs of a Philly trace one queue.")] = False,
    policy: PoliciesOption = None,
    faults: Annotated[Path | None, typer.Option(help="A fault script as TOML: nodes, GPUs, ranks, pods.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page of HTML with pictures to this file.")] = None,
    keep_log: KeepLogOption = None,
    json: JsonOption = False,
) -> None:
    """Try out what the scheduler would decide, without a cluster.

    Example: gangline simulate philly.csv --divide 9 --policy strict.toml --policy ours.toml --report philly.html
    """
    if scenario is not None:
        if trace is not None or mix:
            raise UsageError("a scenario brings its own jobs: leave out the trace and --mix")
        from gangline.cli import scenario_output, simulate_options

        simulate_options.refuse_unused(_given(ctx), "scenario")
        scenario_output.run_scenario(scenario, check_only=check, as_json=json)
        return
    if (trace is None) == (not mix):
        raise UsageError("name what to simulate: one of a trace, --mix, and --scenario FILE")
    from gangline.cli import simulate_policies as run

    asked = run.Asked(
        trace=trace,
        given=_given(ctx),
        seed=seed,
        load=load,
        days=days,
        cluster=(nodes, node_gpus, pods or -(-nodes // 32)),
        node_list=node_list,
        divide=divide,
        pooled=pooled,
        policies=tuple(policy or ()),
        faults=faults,
        report=report,
        keep_log=keep_log,
    )
    run.run_policies(asked, as_json=json)


def _given(ctx: typer.Context) -> frozenset[str]:
    """Return the options that stand on the command line."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")
