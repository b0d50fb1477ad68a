"""What agents report of live attempts besides their ranks' lives: idle ones, slow ranks, warnings given."""

from msgspec.structs import replace

from gangline.events.control import JobIdled, RankSlow
from gangline.events.decisions import RuntimeWarned
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.journal import put_job
from gangline.scheduler.state import Attempt, Job, SlowRank, State
from gangline.scheduler.timers import clear_timer

MAX_SLOW_RANKS = 64
"""Ranks of an attempt of which slowness is remembered; a gang in which more are slow is slow as a whole."""


def job_idled(state: State, event: JobIdled) -> State:
    """Note that an interactive job has done nothing for so long."""
    job = state.jobs.get(event.job_id)
    if job is None or not job.spec.interactive:
        return state
    attempt = _live(job, event.attempt)
    if attempt is None or event.idle_us <= 0:
        return state
    return _put(state, job, replace(attempt, idle_us=event.idle_us))


def rank_slow(state: State, event: RankSlow) -> State:
    """Count a report of a rank that is slower than its peers."""
    job = state.jobs.get(event.job_id)
    attempt = None if job is None else _live(job, event.attempt)
    if job is None or attempt is None:
        return state
    if not any(event.node_id == share.node_id and event.rank in share.ranks for share in attempt.bound.shares):
        raise Inapplicable(f"rank {event.rank} does not run on node {event.node_id!r}")
    before = next((slow for slow in attempt.slow if slow.rank == event.rank), None)
    if before is None:
        before = SlowRank(rank=event.rank, node_id=event.node_id)
    elif before.event_id == event.meta.event_id:
        return state
    slow = replace(before, reports=before.reports + 1, slowness_ppm=event.slowness_ppm, event_id=event.meta.event_id)
    others = [one for one in attempt.slow if one.rank != event.rank][-(MAX_SLOW_RANKS - 1) :]
    return _put(state, job, replace(attempt, slow=(*others, slow)))


def runtime_warned(state: State, decision: RuntimeWarned) -> State:
    """Note that the attempt was told when it will be stopped."""
    return clear_timer(state, "warning", decision.job_id)


def _live(job: Job, attempt: int) -> Attempt | None:
    """Return the attempt that a report is about, if it is live and not stopping."""
    if job.attempt is None or job.attempt.bound.attempt != attempt or job.attempt.is_stopping:
        return None
    return job.attempt


def _put(state: State, job: Job, attempt: Attempt) -> State:
    touched = state.touched.set(job.job_id, True)  # noqa: FBT003 - a map used as a set
    return put_job(state, replace(job, attempt=attempt), touched=touched)
