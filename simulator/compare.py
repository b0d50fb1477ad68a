"""Runs one plan under several policies, one after the other, and sums up what came of each."""

import time
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gangline.events.log import Log
from gangline.simulator import faults
from gangline.simulator.plan import NamedPolicy, Plan, Progress
from gangline.simulator.recorder import Recorder, top_of
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import SECOND_US
from gangline.simulator.world import World

GPU_HOUR = 3600 * SECOND_US * 1000
"""In thousandths of a GPU times microseconds."""
GANG_GPUS = 32
"""From which size on the longest wait is reported."""
SIZES: tuple[tuple[str, int], ...] = (
    ("under 1", 999),
    ("1", 1_000),
    ("2-4", 4_000),
    ("5-8", 8_000),
    ("9-32", 32_000),
    ("33-128", 128_000),
    ("129 and more", 1 << 62),
)
"""Sizes of jobs that are shown apart, each with the most thousandths of a GPU that it holds."""


class BySize(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs of a size waited, in seconds; those that still wait count so far."""

    size: str
    jobs: int
    mean_s: float
    median_s: float
    p99_s: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one policy. Waits run from submission, or the end of an attempt, to a binding."""

    policy: str
    jobs: int
    succeeded: int
    failed: int
    rejected: int
    unfinished: int
    days: float
    allocation_pct: float
    """Of what was usable: the smaller of the GPUs that were up and those asked for."""
    useful_pct: float
    """The same, without saves, restarts and lost work."""
    wait_mean_s: float
    wait_median_s: float
    wait_p99_s: float
    gang_wait_longest_s: float
    """Of jobs of 32 GPUs and more."""
    preemptions_per_job: float
    preemptions_most: int
    lost_gpu_hours: float
    fragmented_pct: float
    """Of what was free, the part on nodes that were partly used."""
    rounds: int
    took_s: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its summary, and what the report draws."""

    summary: Summary
    by_size: tuple[BySize, ...]
    guarantees: dict[str, int]
    """Thousandths of a GPU by queue, for those that state one."""
    recorder: Recorder


def run(plan: Plan, named: NamedPolicy, *, log: Log | None = None, progress: Progress | None = None) -> Result:
    """Simulate a plan under a policy. Raises SimulationError, and BadFault for a script that does not fit the plan."""
    started_s = time.perf_counter()
    policy = named.policy if named.own_queues else replace(named.policy, queues=plan.queues)
    recorder = Recorder(plan.nodes)
    world = World(
        nodes=plan.nodes,
        policy=policy,
        works=plan.works,
        failures=plan.failures,
        observers=[recorder],
        log=log,
        log_id=f"simulation-{named.name}",
    )
    faults.schedule(plan.faults, world)
    world.run(plan.until_us, progress=progress)
    until_us = recorder.until_us if plan.until_us is None else plan.until_us
    guarantees = {
        queue.path: quota.guarantee_milli
        for queue in policy.queues
        for quota in queue.quotas
        if "/" not in queue.path and quota.guarantee_milli is not None
    }
    return Result(
        summary=_summary(named.name, world, recorder, until_us, time.perf_counter() - started_s),
        by_size=tuple(_by_size(recorder.jobs, until_us)),
        guarantees=guarantees,
        recorder=recorder,
    )


def waited_s(job: VirtualJob, until_us: int) -> float:
    """Return how long a job has waited by then."""
    waiting_us = max(until_us - job.waiting_us, 0) if job.waiting_us is not None else 0
    return (job.waited_us + waiting_us) / SECOND_US


def _summary(name: str, world: World, recorder: Recorder, until_us: int, took_s: float) -> Summary:
    jobs = recorder.jobs
    waits = sorted(waited_s(job, until_us) for job in jobs)
    outcomes = [job.outcome for job in jobs]
    usable = max(recorder.usable.mean(until_us) * until_us, 1.0)
    allocated = sum(series.mean(until_us) for series in recorder.allocated.values()) * until_us
    overhead = sum(recorder.spent[kind] for kind in ("saving", "restarting", "lost"))
    free, broken = recorder.free.mean(until_us), recorder.broken.mean(until_us)
    return Summary(
        policy=name,
        jobs=len(jobs),
        succeeded=outcomes.count("succeeded"),
        failed=outcomes.count("failed") + outcomes.count("cancelled"),
        rejected=outcomes.count("rejected"),
        unfinished=outcomes.count(None),
        days=until_us / (24 * 3600 * SECOND_US),
        allocation_pct=100 * allocated / usable,
        useful_pct=100 * (allocated - overhead) / usable,
        wait_mean_s=sum(waits) / max(len(waits), 1),
        wait_median_s=_quantile(waits, 50),
        wait_p99_s=_quantile(waits, 99),
        gang_wait_longest_s=max(
            (waited_s(job, until_us) for job in jobs if job.work.spec.gpus >= GANG_GPUS), default=0.0
        ),
        preemptions_per_job=sum(job.preemptions for job in jobs) / max(len(jobs), 1),
        preemptions_most=max((job.preemptions for job in jobs), default=0),
        lost_gpu_hours=recorder.spent["lost"] / GPU_HOUR,
        fragmented_pct=100 * broken / free if free else 0.0,
        rounds=world.driver.rounds,
        took_s=took_s,
    )


def _by_size(jobs: Sequence[VirtualJob], until_us: int) -> list[BySize]:
    found: dict[str, list[float]] = {name: [] for name, _ in SIZES}
    for job in jobs:
        milli = job.work.spec.gpus * job.work.spec.gpu_milli
        found[next(name for name, most in SIZES if milli <= most)].append(waited_s(job, until_us))
    return [
        BySize(
            size=name,
            jobs=len(waits),
            mean_s=sum(waits) / len(waits),
            median_s=_quantile(sorted(waits), 50),
            p99_s=_quantile(sorted(waits), 99),
        )
        for name, waits in found.items()
        if waits
    ]


def _quantile(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] if ordered else 0.0


__all__ = ["BySize", "Result", "Summary", "run", "top_of", "waited_s"]
