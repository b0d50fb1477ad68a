"""Elastic gangs: the sizes that one may have, what it waits as, and the largest of some sizes that fits.

One that waits counts as a gang of its least size wherever turn, quota and making room are decided. Where it starts it
gets more if that fits.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from gangline.events.policy import Policy
from gangline.events.types import JobSpec
from gangline.scheduler.state import Attempt, Job

RULE = "elastic"

T = TypeVar("T")


def is_elastic(policy: Policy | None, spec: JobSpec) -> bool:
    """Whether a job is run at more than one size; with the rule off it has the size that it asks for first."""
    return spec.elastic is not None and policy is not None and RULE in policy.rules


def sizes(policy: Policy | None, spec: JobSpec) -> Sequence[int]:
    """Return how many ranks of its own a job may have, ascending."""
    if spec.elastic is None or not is_elastic(policy, spec):
        return (max(spec.gpus, 1),)
    return range(spec.elastic.min_gpus, spec.elastic.max_gpus + 1, spec.elastic.step_gpus)


def sized(spec: JobSpec, gpus: int) -> JobSpec:
    """Return the spec of a gang of just this size."""
    return replace(spec, gpus=gpus, elastic=None)


def least(policy: Policy | None, spec: JobSpec) -> JobSpec:
    """Return the spec as which a job waits: an elastic one asks for its least size."""
    if spec.elastic is None or not is_elastic(policy, spec):
        return spec
    return sized(spec, spec.elastic.min_gpus)


def waiting(policy: Policy | None, job: Job) -> Job:
    """Return the job as which it waits."""
    spec = least(policy, job.spec)
    return job if spec is job.spec else replace(job, spec=spec)


def running(spec: JobSpec, attempt: Attempt) -> JobSpec:
    """Return the spec as which a job runs: that of the size of its attempt."""
    return spec if spec.elastic is None else sized(spec, size_of(attempt))


def size_of(attempt: Attempt) -> int:
    """Return how many ranks of its own an attempt has."""
    return sum(len(share.ranks) for share in attempt.bound.shares if not share.role)


def of_size(job: Job, gpus: int) -> Job:
    """Return the job as one of just this size."""
    return replace(job, spec=sized(job.spec, gpus))


def largest(options: Sequence[int], found_at: Callable[[int], T | None]) -> T | None:
    """Return what is found at the largest of these sizes, ascending, at which anything is.

    Where one size fits all smaller ones are taken to fit, too, so that few are tried.
    """
    best: T | None = None
    low, high = 0, len(options)
    while low < high:
        # The largest first, for it often fits.
        middle = high - 1 if best is None and high == len(options) else (low + high) // 2
        found = found_at(options[middle])
        if found is None:
            high = middle
        else:
            best, low = found, middle + 1
    return best
