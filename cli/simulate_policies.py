"""Simulates a workload under policies side by side: a table or JSON on stdout, a page of HTML, progress on stderr."""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gangline.cli.output import BOLD, paint, print_json, printable, say
from gangline.cli.policy_file import read_policy, refuse_policy
from gangline.cli.simulate_options import refuse_unused
from gangline.cli.toml_file import TomlFile
from gangline.events.log import Log
from gangline.events.policy import Policy
from gangline.schemas.errors import UsageError
from gangline.simulator import compare, csv_rows, plans, report
from gangline.simulator.compare import Result
from gangline.simulator.faults import BadFault
from gangline.simulator.mix import DAYS, Mix
from gangline.simulator.plan import NamedPolicy, Plan, Progress

MAX_LOAD = 10.0
POLICIES_MOST = 12
"""More policies than a page can show side by side."""


class Asked(NamedTuple):
    """What the command line asked for."""

    trace: Path | None
    given: frozenset[str]
    """The options that stand on the command line, as simulate_options names them."""
    seed: int
    load: float
    days: int | None
    cluster: tuple[int, int, int]
    node_list: Path | None
    divide: int
    pooled: bool
    policies: tuple[Path, ...]
    faults: Path | None
    report: Path | None
    keep_log: Path | None


def run_policies(asked: Asked, *, as_json: bool) -> None:
    """Simulate and print. Raises UsageError, and what traces, scripts and worlds raise."""
    policies = _policies(asked.policies)
    if asked.keep_log is not None and len(policies) > 1:
        raise UsageError("--keep-log keeps the log of one simulation: name one policy")
    _can_report(asked.report)
    plan = _plan(asked)
    say(plan.title)
    if plan.attribution:
        say(plan.attribution)
    results = []
    # As the scheduler sets it: little of what a simulation makes is garbage that only a collection finds.
    gc.set_threshold(100_000, 50, 100)
    for named in policies:
        with _kept(asked.keep_log) as log, _progress(plan, named.name) as progress:
            try:
                results.append(compare.run(plan, named, log=log, progress=progress))
            except BadFault as error:
                raise UsageError(f"{asked.faults}: {error}") from error
    if asked.report is not None:
        _write(asked.report, report.page(plan.title, results, attribution=plan.attribution))
        say(f"the report is {asked.report}")
    if as_json:
        print_json(_as_json(plan, results))
        return
    _print_side_by_side(results)
    print(report.MEANING)
    for text in _rejections(results):
        print(printable(text))
    if plan.attribution:
        print(plan.attribution)


def _policies(paths: tuple[Path, ...]) -> list[NamedPolicy]:
    if len(paths) > POLICIES_MOST:
        raise UsageError(f"{len(paths)} policies are too many to stand side by side: name at most {POLICIES_MOST}")
    names = [path.stem for path in paths]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two policies are called '{twice}': rename a file, for tables name them by their files")
    found = []
    for path in paths:
        file = TomlFile(path, "a policy")
        own = "queues" in file.table
        policy = file.read(read_policy)
        refuse_policy(file, policy)
        found.append(NamedPolicy(name=path.stem, policy=policy, own_queues=own))
    return found or [NamedPolicy(name="default", policy=Policy())]


def _plan(asked: Asked) -> Plan:
    if not 0 < asked.load <= MAX_LOAD:
        raise UsageError(f"--load: this is {asked.load:g}, but has to be more than 0 and at most {MAX_LOAD:g}")
    if asked.days is not None and asked.days < 1:
        raise UsageError(f"--days: this is {asked.days}, but has to be at least 1")
    if asked.trace is None:
        refuse_unused(asked.given, "mix")
        plan = plans.of_mix(Mix(seed=asked.seed, load=asked.load, days=asked.days or DAYS))
    else:
        plan = _of_trace(asked, asked.trace)
        plan = plan if asked.days is None else plans.first_days(plan, asked.days)
    if asked.faults is None:
        return plan
    from gangline.cli.fault_file import read_faults

    return replace(plan, faults=read_faults(asked.faults))


def _of_trace(asked: Asked, trace: Path) -> Plan:
    if trace.is_dir():
        from gangline.cli.place import Place
        from gangline.simulator.recorded import of_log

        refuse_unused(asked.given, "log")
        log = Place(trace).open_log()
        try:
            return of_log(log, trace.name)
        finally:
            log.close()
    columns = csv_rows.columns(trace)
    if "gpu_milli" in columns:
        refuse_unused(asked.given, "openb")
        if asked.node_list is None:
            raise UsageError(f"{trace} is a list of openb's tasks: name the nodes with --node-list")
        return plans.of_openb(trace, asked.node_list, divide=asked.divide)
    refuse_unused(asked.given, "philly")
    nodes, node_gpus, pods = asked.cluster
    if pods > nodes:
        raise UsageError(f"--pods: {nodes} nodes cannot lie in {pods} pods")
    cluster = plans.Cluster(nodes=nodes, node_gpus=node_gpus, pods=pods)
    return plans.of_philly(trace, cluster, divide=asked.divide, teams=not asked.pooled)


def _can_report(path: Path | None) -> None:
    """Raise UsageError if a report could not be drawn or written, before hours are spent on it."""
    if path is None:
        return
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UsageError("a report needs matplotlib: install gangline[report]")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"{path} cannot be written: name a file in a folder that is there")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror})") from error


@contextmanager
def _kept(folder: Path | None) -> Iterator[Log | None]:
    """Open the log of a new folder of gangline's."""
    if folder is None:
        yield None
        return
    from gangline.events.open_log import open_log

    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{folder} is there already: name a new folder for the simulation's log") from None
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made ({error.strerror}): name a new folder in one that is there"
        ) from error
    log = open_log(f"sqlite:{folder / 'log'}", create=True)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def _progress(plan: Plan, name: str) -> Iterator[Progress | None]:
    """Show a bar on stderr while a policy is simulated, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    until_us = plan.until_us or max((work.submit_us + work.work_us for work in plan.works), default=1)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=until_us)
        step_us, shown_us = until_us // 500 + 1, 0

        def tell(at_us: int) -> None:
            nonlocal shown_us
            if at_us >= shown_us:
                shown_us = at_us + step_us
                bar.update(task, completed=at_us)

        yield tell


def _print_side_by_side(results: Sequence[Result]) -> None:
    """Print a line for each number and a column for each policy: so a terminal of 80 columns shows several."""
    names = [name for name, _ in report.COLUMNS]
    columns = [names, *report.rows(results)]
    widths = [max(len(cell) for cell in column) for column in columns]
    for number, cells in enumerate(zip(*columns, strict=True)):
        name, *values = (printable(cell) for cell in cells)
        shown = [value.rjust(width) for value, width in zip(values, widths[1:], strict=True)]
        line = "  ".join([name.ljust(widths[0]), *shown])
        print(paint(line, BOLD) if number == 0 else line)


def _rejections(results: Sequence[Result]) -> Iterator[str]:
    """Yield why a policy rejected jobs, of the first one each."""
    for result in results:
        first = next((job for job in result.recorder.jobs if job.outcome == "rejected"), None)
        if first is not None:
            yield f"rejected by {result.summary.policy}, as {first.work.spec.name}: {first.cause}"


def _as_json(plan: Plan, results: list[Result]) -> dict[str, object]:
    return {
        "title": plan.title,
        "attribution": plan.attribution,
        "policies": [{"summary": result.summary, "by_size": result.by_size} for result in results],
        "rejections": list(_rejections(results)),
    }
