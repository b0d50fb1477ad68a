"""Whose turn it is: the order in which the groups of pending jobs are tried.

Recovering jobs; then those within guarantee; then multi-node gangs never started that have waited long; then the rest.
Between queues the first level of the tree decides where their paths differ, by what was used of late over weight;
inside a queue priority, level of service, submission.
"""

from typing import NamedTuple

from gangline.events.policy import Policy
from gangline.scheduler.elastic import least
from gangline.scheduler.shapes import Shape, shape_of
from gangline.scheduler.state import Job, State
from gangline.scheduler.views import Views
from gangline.scheduler.views.pending import Entry, GroupKey, key_of
from gangline.scheduler.views.uses import quota_is_on

WITHIN, FIRST_START, REST = range(3)
"""The classes of what does not recover, in the order in which they are served."""


class Turn(NamedTuple):
    """A sort key; the smallest is tried first. No two jobs have the same."""

    recovers_not: bool
    queues: tuple[tuple[int, int, str], ...]
    """(class, share of what was used of late, path) of each queue from the topmost down."""
    negative_priority: int
    level: int
    place: Entry


def turn_of(state: State, policy: Policy, views: Views, group: GroupKey, head: Entry) -> Turn:
    """Return when a group's first job is tried."""
    if policy.order != "fair":
        return Turn(True, (), 0, 0, head)  # noqa: FBT003 - by position, for it is made often
    shape = group.shape
    otherwise = REST
    if group.is_new_gang and is_long_waiting(state, policy, state.jobs[head[-1]]):
        otherwise = FIRST_START
    uses = views.uses
    queues = tuple(
        (
            WITHIN if is_within(views, policy, path, shape) else otherwise,
            uses.share_of(state, policy, path),
            path,
        )
        for path in uses.tree.prefixes(group.queue)
    )
    return Turn(not group.recovering, queues, -group.priority, group.level, head)


def turn_of_job(state: State, policy: Policy, views: Views, job: Job) -> Turn:
    """Return when a pending job would be tried if it were the first of its group."""
    group = key_of(policy, job, views.nodes.fleet)
    return turn_of(state, policy, views, group, (0, job.submitted, job.array_index or 0, job.job_id))


def is_within(views: Views, policy: Policy, path: str, shape: Shape) -> bool:
    """Whether a queue stays within its guarantee with a job of this shape, of one of the types that it accepts."""
    if not quota_is_on(policy):
        return False
    uses = views.uses
    return any(uses.is_within(path, gpu_type, shape.milli) for gpu_type in shape.gpu_types or uses.tree.types)


def is_guaranteed_before(views: Views, policy: Policy, job: Job, other: Job) -> bool:
    """Whether a job is within guarantee and another one is not, where their queues' paths differ first."""
    above = views.uses.tree.prefixes
    for path, theirs in zip(above(job.spec.queue), above(other.spec.queue), strict=False):
        if path != theirs:
            within = is_within(views, policy, path, shape_of(least(policy, job.spec)))
            return within and not is_within(views, policy, theirs, shape_of(least(policy, other.spec)))
    return False


def is_long_waiting(state: State, policy: Policy, job: Job) -> bool:
    """Whether a gang that was never started has waited so long that it comes before the rest."""
    return (
        "first_start" in policy.rules
        and not job.attempts
        and state.now_us - job.pending_since_us >= policy.first_start_after_us
    )


def waited_us(state: State, job: Job) -> int:
    """Return how long a job has waited in all."""
    waiting = state.now_us - job.pending_since_us if job.attempt is None else 0
    return job.waited_us + waiting
