"""Queueing in the Philly experiment: strict orders against their references, then the default policy.

Every run of the strict orders is checked start by start: against an independent program, and at the trace's own
settings against the starts published beside it.
"""

import csv
import gzip
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure
from benchmarks.log_fold import quiet_collector
from benchmarks.options import TRACES, Option, trace_file
from benchmarks.queueing_reference import Asked, by_duration, by_submission, starts
from gangline.events.policy import Policy
from gangline.schemas.errors import GanglineError, NotFound
from gangline.simulator import philly, queueing
from gangline.simulator.philly import PhillyJob
from gangline.simulator.queueing import Queueing
from gangline.simulator.work import SECOND_US, Work, uniform_nodes
from gangline.simulator.world import World

NAME = "philly.csv"
DIVIDE, NODES, NODE_GPUS = 9, 512, 8
QUICK_PART = 32
"""Of how many jobs --quick takes one, and of how many nodes: so it is as loaded as the whole trace, all along."""
OPTIONS = (
    Option("trace", Path, None, f"the Philly trace; else {NAME} in the folder that {TRACES} names"),
    Option("divide", int, DIVIDE, "how much faster jobs arrive"),
    Option("nodes", int, NODES, f"nodes of {NODE_GPUS} GPUs"),
)
GOALS = {
    "default_mean_s": 300.0,
    "default_p99_s": 2_000.0,
    "default_gang_longest_s": 3_600.0,
    "default_preemptions_per_job": 0.15,
    "default_preemptions_most": 10.0,
    "teams_mean_s": 550.0,
    "wall_s": 60.0,
}
REFERENCES = {
    "fifo": "18,601 s by the trace's README; Philly, CC BY 4.0",
    "sjf": "894 s by the trace's README; Philly, CC BY 4.0",
    "default": "FIFO 18,601 s, SJF 894 s, clairvoyant SRPT 263 s; Philly, CC BY 4.0",
    "teams": "guarantees of the virtual clusters; FIFO 18,601 s; Philly, CC BY 4.0",
}


class WrongExperiment(GanglineError):
    """A strict order does not give the reference's starts, so that nothing measured beside it counts."""


class Pool(NamedTuple):
    """The jobs of one run of the benchmark, how much faster they arrive, and on how many nodes."""

    jobs: Sequence[PhillyJob]
    divide: int
    nodes: int
    published: Path | None
    """The folder in which the references' starts may lie; None for a part of the trace."""


def figures(*, quick: bool, trace: Path | None, divide: int, nodes: int) -> Iterator[Figure]:
    """Yield the figures of the four runs."""
    path = trace_file(trace, NAME)
    if path is None:
        raise NotFound(f"the Philly trace is needed: name it with --trace, or its folder with {TRACES}")
    jobs = philly.jobs(path, gpus_most=nodes * NODE_GPUS)
    if quick:
        nodes = max(nodes // QUICK_PART, 1)
        jobs = [job for job in _thinned(jobs) if job.gpus <= nodes * NODE_GPUS]
    pool = Pool(jobs, divide, nodes, None if quick else path.parent)
    print(f"  {philly.ATTRIBUTION}", file=sys.stderr)
    yield from _named("fifo", _strict("fifo", by_submission, pool))
    yield from _named("sjf", _strict("sjf", by_duration, pool))
    works = queueing.works(jobs, divide=divide)
    found, wall_s, cpu_s = _measured(queueing.pooled(Policy()), works, nodes)
    yield from _named("default", found)
    yield _figure("default_preemptions_per_job", found.preemptions_per_job, "1", "moves count; 30 s and 60 s each")
    yield _figure("default_preemptions_most", float(found.preemptions_most), "1", "of any one job")
    yield _figure("wall_s", wall_s, "s", f"{len(works):,} jobs in the default run; CPU time {cpu_s:.1f} s")
    policy, queues = queueing.by_teams(Policy(), jobs, gpus=nodes * NODE_GPUS)
    found, _, _ = _measured(policy, queueing.works(jobs, divide=divide, queues=queues), nodes)
    yield from _named("teams", found)


def _thinned(jobs: Sequence[PhillyJob]) -> Sequence[PhillyJob]:
    return sorted(jobs, key=lambda job: job.arrival_s)[::QUICK_PART]


def _strict(name: str, order: Callable[[Asked], tuple[int, ...]], pool: Pool) -> Queueing:
    """Run a strict order and check every start."""
    works = queueing.works(pool.jobs, divide=pool.divide, declared=name == "sjf")
    policy = Policy(order="shortest_declared" if name == "sjf" else "submission", head_blocks=True, rules=())
    world = _run(queueing.pooled(policy), works, pool.nodes)
    asked = [
        Asked(position, work.submit_us // SECOND_US, work.work_us // SECOND_US, work.spec.gpus)
        for position, work in enumerate(works)
    ]
    expected = starts(asked, pool.nodes, NODE_GPUS, order)
    _check(name, world, {works[position].number: at_s for position, at_s in expected.items()}, "an independent program")
    if pool.published is not None:
        published = pool.published / f"philly_div{pool.divide}_{pool.nodes}x{NODE_GPUS}_{name}_starts.csv.gz"
        if published.is_file():
            with gzip.open(published, "rt", encoding="ascii") as file:
                rows = {int(row["row"]): int(row["start_s"]) for row in csv.DictReader(file)}
            _check(name, world, rows, published.name)
    return queueing.summary(world.jobs)


def _check(name: str, world: World, expected: dict[int, int], whose: str) -> None:
    started = ((job.work.number, job.first_start_us) for job in world.jobs)
    found = {number: at_us // SECOND_US for number, at_us in started if at_us is not None}
    if found != expected:
        row = min(row for row in {*found, *expected} if found.get(row) != expected.get(row))
        raise WrongExperiment(
            f"{name}: row {row} starts at {found.get(row)} s, but by {whose} at {expected.get(row)} s: the experiment "
            "is wrong, and so would be what is measured beside it"
        )
    print(f"  {name}: {len(found):,} starts are those of {whose}", file=sys.stderr)


def _measured(policy: Policy, works: Sequence[Work], nodes: int) -> tuple[Queueing, float, float]:
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    world = _run(policy, works, nodes)
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    return queueing.summary(world.jobs), wall_s, cpu_s


def _run(policy: Policy, works: Sequence[Work], nodes: int) -> World:
    with quiet_collector():
        world = World(nodes=uniform_nodes(nodes, gpus=NODE_GPUS), policy=policy, works=works)
        world.run()
    lost = [job for job in world.jobs if job.outcome != "succeeded"]
    if lost:
        raise WrongExperiment(f"job '{lost[0].work.spec.name}' {lost[0].outcome}: {lost[0].cause}")
    return world


def _named(name: str, found: Queueing) -> Iterator[Figure]:
    for part, value in (("mean_s", found.mean_s), ("p99_s", found.p99_s), ("gang_longest_s", found.gang_longest_s)):
        yield _figure(f"{name}_{part}", value, "s", REFERENCES[name])


def _figure(name: str, value: float, unit: str, reference: str) -> Figure:
    return Figure(
        name=f"queueing.{name}", value=value, unit=unit, goal=GOALS.get(name), better="lower", reference=reference
    )
