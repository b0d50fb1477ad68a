"""The mix: a month of four teams on 4,096 GPUs, jobs from a tenth of a GPU to gangs of 1,024, with failures.

Everything is drawn from the seed, and what befalls an attempt from the seed, its job and its number alone, so that
every policy sees the same workload.
"""

import math
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.events.policy import Queue, Quota
from gangline.events.types import HOUR_US, WHOLE_MILLI, JobSpec, Value
from gangline.simulator.work import SECOND_US, Failure, Failures, VirtualNode, Work, uniform_nodes

DAY_US = 24 * HOUR_US
DAYS = 33
SETTLING_DAYS = 3
"""At the beginning, not measured."""
NODES, NODE_GPUS, PODS = 512, 8, 16
GUARANTEE_GPUS = 1_024
"""Of each team."""
TEAMS = ("team-1", "team-2", "team-3", "team-4")
TEAM_SHARES = (0.4, 0.3, 0.2, 0.1)
PROJECTS = ("project-1", "project-2")
PROJECT_GUARANTEE_GPUS = GUARANTEE_GPUS // len(PROJECTS)
"""Of each project: they state none, and so share what their team's leaves."""

DAY_SWING = 0.6
FRACTIONS = 0.1
"""Of the jobs of one GPU: these take 100 to 500 thousandths of it."""
SIGMA = 1.3
"""Of the logarithms of durations."""
DECLARED, DECLARED_LEAST, DECLARED_MOST = 0.5, 1.2, 4.0
PREEMPTIBLE, PREEMPTIBLE_FROM_GPUS = 0.7, 512
"""The share of preemptible jobs; larger gangs always are."""

SAVE_US = 30 * SECOND_US
RESTART_US = 120 * SECOND_US
FAILURE_HOURS, FAILURE_GPUS, FAILURE_HOURS_MOST = 8.0, 256, 1000.0
NODE_FAILURES, NODE_DOWN_US = 0.2, 4 * HOUR_US
RETRIES = 1_000
"""The most that is admitted; the mix knows no job that fails for good."""

Numbers = NDArray[np.float64]


class Kind(Value, frozen=True, kw_only=True):
    """One of the two kinds of jobs: how many come, how large, how long, and the part of the cluster they ask for."""

    name: str
    stream: int
    """Of random numbers."""
    per_hour: float
    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    median_hours: float
    load: float


SMALL = Kind(
    name="small",
    stream=1,
    per_hour=221.9,
    sizes=(1, 2, 4, 8),
    shares=(0.4, 0.2, 0.2, 0.2),
    median_hours=1.0,
    load=0.4,
)
GANGS = Kind(
    name="gang",
    stream=2,
    per_hour=0.533,
    sizes=(64, 128, 256, 512, 1024),
    shares=(16 / 31, 8 / 31, 4 / 31, 2 / 31, 1 / 31),
    median_hours=12.0,
    load=0.6,
)


class Mix(Value, frozen=True, kw_only=True):
    """What the generator is asked for."""

    seed: int
    load: float = 1.0
    days: int = DAYS


def nodes() -> Sequence[VirtualNode]:
    """Return the cluster."""
    return uniform_nodes(NODES, gpus=NODE_GPUS, pods=PODS)


def queues() -> tuple[Queue, ...]:
    """Return the quota tree: four teams with a guarantee each, two projects a team without any of their own."""
    quota = (Quota(guarantee_milli=GUARANTEE_GPUS * WHOLE_MILLI),)
    teams = [Queue(path=team, quotas=quota) for team in TEAMS]
    return (*teams, *(Queue(path=f"{team}/{project}") for team in TEAMS for project in PROJECTS))


def team_of(spec: JobSpec) -> str:
    """Return the team that a job belongs to."""
    return spec.queue.partition("/")[0]


def milli_of(spec: JobSpec) -> int:
    """Return the thousandths of GPUs that a job asks for."""
    return spec.gpus * spec.gpu_milli


def is_gang(spec: JobSpec) -> bool:
    """Whether a job takes more than one node."""
    return spec.gpus > NODE_GPUS


def works(mix: Mix) -> list[Work]:
    """Return the workload in the order of its arrival."""
    ordered = sorted([*_jobs(mix, SMALL), *_jobs(mix, GANGS)], key=lambda job: (job[0], job[1].name))
    return [_work(number, at_us, spec, work_us) for number, (at_us, spec, work_us) in enumerate(ordered)]


def failures(mix: Mix) -> Failures:
    """Return when and how attempts fail."""

    def fail(work: Work, attempt: int, gpus: int, shares: int) -> Failure | None:
        draw = random.Random(f"{mix.seed}/{work.number}/{attempt}")  # noqa: S311 - a workload, no secret
        after_us = int(draw.expovariate(1.0) * _failure_hours(gpus) * HOUR_US)
        share = draw.randrange(shares)
        node = draw.random() < NODE_FAILURES
        return Failure(after_us=after_us, share=share, node_down_us=NODE_DOWN_US if node else None)

    return fail


def _failure_hours(gpus: int) -> float:
    return min(FAILURE_HOURS * FAILURE_GPUS / max(gpus, 1), FAILURE_HOURS_MOST)


def save_interval_us(gpus: int) -> int:
    """Return how long a job works between two saves: Young's interval, sqrt(2 x cost of a save x time to failure)."""
    return math.isqrt(2 * SAVE_US * int(_failure_hours(gpus) * HOUR_US))


def _arrivals_hours(rng: np.random.Generator, mix: Mix, per_hour: float) -> Numbers:
    """Draw a Poisson process whose rate swings with the day, by thinning."""
    hours = mix.days * 24
    count = int(rng.poisson(per_hour * (1 + DAY_SWING) * hours))
    at = np.sort(rng.uniform(0.0, hours, count))
    rate = (1 + DAY_SWING * np.cos(2 * np.pi * (at - 12) / 24)) / (1 + DAY_SWING)
    kept: Numbers = at[rng.random(count) < rate]
    return kept


def _jobs(mix: Mix, kind: Kind) -> list[tuple[int, JobSpec, int]]:
    """Draw the jobs of a kind: when they come, what they ask for, and how long they work."""
    rng = np.random.default_rng([mix.seed, kind.stream])
    at = _arrivals_hours(rng, mix, kind.per_hour)
    count = len(at)
    gpus = rng.choice(kind.sizes, size=count, p=kind.shares)
    fraction = (gpus == 1) & (rng.random(count) < FRACTIONS)
    milli = np.where(fraction, rng.integers(100, 501, count), WHOLE_MILLI)
    hours = np.exp(rng.normal(math.log(kind.median_hours), SIGMA, count))
    asked_hours = mix.load * kind.load * NODES * NODE_GPUS * mix.days * 24
    hours *= asked_hours / float((hours * gpus * milli / WHOLE_MILLI).sum())
    declared = rng.random(count) < DECLARED
    factor = rng.uniform(DECLARED_LEAST, DECLARED_MOST, count)
    team = rng.choice(len(TEAMS), size=count, p=TEAM_SHARES)
    project = rng.integers(0, len(PROJECTS), count)
    preemptible = (rng.random(count) < PREEMPTIBLE) | (gpus >= PREEMPTIBLE_FROM_GPUS)
    found = []
    for row in range(count):
        work_us = max(int(hours[row] * HOUR_US), SECOND_US)
        spec = JobSpec(
            name=f"{kind.name}-{row}",
            queue=f"{TEAMS[team[row]]}/{PROJECTS[project[row]]}",
            command=("train",),
            gpus=int(gpus[row]),
            gpu_milli=int(milli[row]),
            retries=RETRIES,
            max_runtime_us=int(work_us * factor[row]) if declared[row] else None,
            preemptible=bool(preemptible[row]),
        )
        found.append((int(at[row] * HOUR_US), spec, work_us))
    return found


def _work(number: int, at_us: int, spec: JobSpec, work_us: int) -> Work:
    return Work(
        number=number,
        submit_us=at_us,
        spec=spec,
        work_us=work_us,
        save_us=SAVE_US,
        save_interval_us=save_interval_us(spec.gpus),
        restart_us=RESTART_US,
        fails=True,
    )
