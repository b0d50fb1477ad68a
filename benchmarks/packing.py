"""How full a cluster that shares GPUs gets: gangline's placement beside random, best fit and FGD, same arrivals."""

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.options import TRACES, Option, seeds, trace_file
from benchmarks.packing_references import BestFit, Fgd, Random
from benchmarks.packing_world import KINDS, MARKS_PERCENT, Outcome, Rule, Trace, arrivals, fleet_of, read, run
from gangline.events.policy import Policy
from gangline.scheduler.fit import Choice, Fit
from gangline.scheduler.fleet import Fleet
from gangline.scheduler.placement import place_parts
from gangline.scheduler.shapes import Shape
from gangline.scheduler.worth import UNLEARNT, Seen, arrived, is_due, learn, learnt
from gangline.simulator.openb import Task

OPTIONS = (
    Option("pods", Path, None, f"CSV of tasks (default: openb_pod_list_default.csv in ${TRACES})"),
    Option("nodes", Path, None, f"CSV of nodes (default: openb_node_list_gpu_node.csv in ${TRACES})"),
    Option("seeds", seeds, None, "such as 42-51, the default, or 42; with --quick 42-44"),
)
SEEDS = tuple(range(42, 52))
RULES = ("random", "best_fit", "fgd", "default")
GOALS = {"default_100": 96.0, "default_130": 96.1}
PUBLISHED = {
    "random": (86.30, 87.47),
    "best_fit": (92.86, 93.08),
    "fgd": (95.23, 95.39),
    "default": (95.23, 95.39),
}
"""Of the paper's own runs on the default trace; ours stands beside FGD's."""
PLACEMENT_GOAL_MS = 0.5
KIND_NAMES = {"cpu": "CPU-only", "fraction": "fraction", "one": "one-GPU", "several": "several-GPU"}


class Default:
    """The core's own choice, learning from what arrives as a scheduler does."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self._policy = policy
        self._fit = Fit(fleet, UNLEARNT)
        self._seen = Seen()
        self.spent_s = 0.0

    def choose(self, task: Task) -> Choice | None:
        """Return where a task goes."""
        start = time.perf_counter()
        self._seen = arrived(
            self._seen,
            gpus=task.gpus,
            gpu_milli=task.gpu_milli,
            cpu_milli=task.cpu_milli,
            memory_bytes=task.memory_bytes,
            gpu_types=task.gpu_types,
        )
        if is_due(self._seen, self._policy.worth_refresh_arrivals):
            worth = learn(self._seen, self._fit.fleet.free_by_type())
            self._seen = learnt(self._seen, worth, self._policy.worth_kept_ppm)
            self._fit.learn(worth)
        parts = place_parts(self._fit, _shape(task))
        self.spent_s += time.perf_counter() - start
        return Choice(*parts[0]) if parts else None


def _shape(task: Task) -> Shape:
    """Return a task as a gang on one node, which asks for CPU and memory by rank; a part of one is rounded up."""
    ranks = max(task.gpus, 1)
    return Shape(
        gpus=task.gpus,
        gpu_milli=task.gpu_milli,
        nodes=1,
        gpu_types=task.gpu_types,
        cpu_milli=-(-task.cpu_milli // ranks),
        memory_bytes=-(-task.memory_bytes // ranks),
        required="node",
        preferred="none",
        roles=(),
    )


def figures(*, quick: bool, pods: Path | None, nodes: Path | None, seeds: tuple[int, ...] | None) -> Iterator[Figure]:
    """Yield the allocation of every rule, the shares of tasks accepted, and the time of a placement."""
    pods = trace_file(pods, "openb_pod_list_default.csv")
    nodes = trace_file(nodes, "openb_node_list_gpu_node.csv")
    if pods is None or nodes is None:
        yield from _unmeasured()
        return
    trace = read(pods, nodes)
    chosen = seeds or (SEEDS[:3] if quick else SEEDS)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in RULES}
    spent_s = 0.0
    for seed in chosen:
        for name in RULES:
            outcome, took_s = measured(trace, name, seed)
            outcomes[name].append(outcome)
            spent_s += took_s
            shown = ", ".join(f"{value:.2f}" for value in outcome.allocated_percent)
            print(f"  seed {seed}: {name} {shown}", file=sys.stderr)
    yield from _allocations(outcomes)
    arrived_in_all = sum(outcome.arrivals for outcome in outcomes["default"])
    yield _time(1000 * spent_s / arrived_in_all, f"{arrived_in_all:,} arrivals, refreshes included")
    yield from _accepted(outcomes)


def measured(trace: Trace, name: str, seed: int) -> tuple[Outcome, float]:
    """Return what comes of a rule with a seed, and the seconds that the core took to choose (0 for references)."""
    fleet = fleet_of(trace, seed)
    arriving = arrivals(trace, seed)
    rule: Rule
    if name == "random":
        rule = Random(fleet, seed)
    elif name == "best_fit":
        rule = BestFit(fleet)
    elif name == "fgd":
        rule = Fgd(fleet, trace.tasks)
    else:
        rule = Default(fleet, Policy())
    outcome = run(rule, fleet, arriving, trace.capacity_milli)
    return outcome, rule.spent_s if isinstance(rule, Default) else 0.0


def _unmeasured() -> Iterator[Figure]:
    reference = f"needs --pods PATH --nodes PATH, or {TRACES}=FOLDER with openb_pod_list_default.csv and its nodes"
    for name in RULES:
        for mark in MARKS_PERCENT:
            key = f"{name}_{mark}"
            yield _figure(key, None, "%", GOALS.get(key), reference)
    yield _time(None, reference)
    for kind in KINDS:
        yield _figure(f"accepted_{kind}_vs_fgd", None, "points", 0.0, reference)


def _figure(name: str, value: float | None, unit: str, goal: float | None, reference: str) -> Figure:
    return Figure(name=f"packing.{name}", value=value, unit=unit, goal=goal, better="higher", reference=reference)


def _time(value: float | None, reference: str) -> Figure:
    return Figure(
        name="packing.placement_ms",
        value=value,
        unit="ms",
        goal=PLACEMENT_GOAL_MS,
        better="lower",
        reference=reference,
    )


def _allocations(outcomes: dict[str, list[Outcome]]) -> Iterator[Figure]:
    for name in RULES:
        for place, mark in enumerate(MARKS_PERCENT):
            values = [outcome.allocated_percent[place] for outcome in outcomes[name]]
            of = "FGD, published" if name == "default" else "published"
            reference = f"{of}: {PUBLISHED[name][place]} on the default trace; "
            reference += f"{len(values)} seeds, {min(values):.2f} to {max(values):.2f}; openb, CC BY 4.0"
            yield _figure(f"{name}_{mark}", statistics.mean(values), "%", GOALS.get(f"{name}_{mark}"), reference)


def _accepted(outcomes: dict[str, list[Outcome]]) -> Iterator[Figure]:
    """Yield by how many points of a hundred more of each kind of task find room than with FGD."""
    for kind in KINDS:
        ours, theirs = (
            100 * statistics.mean(outcome.accepted[kind] for outcome in outcomes[name]) for name in ("default", "fgd")
        )
        reference = f"of the {KIND_NAMES[kind]} tasks {ours:.2f}% accepted, by FGD {theirs:.2f}%"
        yield _figure(f"accepted_{kind}_vs_fgd", ours - theirs, "points", 0.0, reference)
