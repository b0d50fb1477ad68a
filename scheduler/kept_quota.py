"""What a gang waits for that its queues' limits keep from it is not given to others, once it has waited so long.

Else a flood of small jobs of its own queue, each of which fits below the limit, would keep it waiting for ever. Nodes
are reserved for it only when its limits would let it have them.
"""

from typing import NamedTuple

from gangline.events.policy import Policy
from gangline.scheduler.elastic import least
from gangline.scheduler.reservations import is_hard
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.state import Job, State
from gangline.scheduler.turns import is_guaranteed_before
from gangline.scheduler.views import Views


class Kept(NamedTuple):
    """For whom quota is kept, and of which limit."""

    job_id: str
    path: str
    what: str
    """`ceiling` or `guarantee`."""
    milli: int


def kept_from(state: State, policy: Policy, views: Views, job: Job, gpu_type: str) -> Kept | None:
    """Return for whom is kept what a job would take of its queues' limits; None if it may have that."""
    milli = shape_of(least(policy, job.spec)).milli
    keeps = job.job_id in state.reserved and is_hard(state, policy, job)
    for other_id in sorted(state.reserved):
        other = state.jobs[other_id]
        if other_id == job.job_id or not is_hard(state, policy, other):
            continue
        if keeps and _place(job) < _place(other):
            continue  # else two might keep it from each other for ever
        if other.spec.gpu_types and gpu_type not in other.spec.gpu_types:
            continue
        kept = _kept(views, job, milli, other, shape_of(least(policy, other.spec)).milli, gpu_type)
        if kept is not None and not is_guaranteed_before(views, policy, job, other):
            return kept
    return None


def _place(job: Job) -> tuple[int, int, str]:
    return job.pending_since_us, job.submitted, job.job_id


def _kept(  # noqa: PLR0917 - two jobs, and what they ask for
    views: Views, job: Job, milli: int, other: Job, other_milli: int, gpu_type: str
) -> Kept | None:
    """Return the limit of a queue above both that would not hold the other one any more; None if all would."""
    uses, fixed = views.uses, not (job.spec.preemptible or other.spec.preemptible)
    theirs = uses.tree.prefixes(other.spec.queue)
    for path in uses.tree.prefixes(job.spec.queue):
        if path not in theirs:
            break
        limits = uses.tree.limits(path, gpu_type)
        both = milli + other_milli
        if limits.ceiling_milli is not None and other_milli <= limits.ceiling_milli < uses.use[path, gpu_type] + both:
            return Kept(other.job_id, path, "ceiling", other_milli)
        if fixed and other_milli <= limits.guarantee_milli < uses.fixed[path, gpu_type] + both:
            return Kept(other.job_id, path, "guarantee", other_milli)
    return None
