"""What rounds do to jobs: bind, stop, end an attempt, requeue, end."""

from msgspec.structs import replace

from gangline.events.decisions import (
    AttemptEnded,
    AttemptPreempted,
    AttemptStopOrdered,
    GangBound,
    JobEnded,
    JobRequeued,
    PreemptionOrdered,
)
from gangline.scheduler import dependencies
from gangline.scheduler.arrays import places_given_up, task_ended
from gangline.scheduler.barriers import barred
from gangline.scheduler.durations import observed
from gangline.scheduler.holding import take
from gangline.scheduler.journal import drop_job, drop_reserved, drop_room, put_job, put_node
from gangline.scheduler.state import Attempt, Evictor, Job, ShareStatus, StaleShare, State
from gangline.scheduler.timers import clear_timer, follow_interval, set_timer
from gangline.scheduler.usage import milli_of, occupied

MAX_EVICTORS = 64
"""Jobs that one remembers as having evicted it: more than policy lets it be evicted, but for reclaim."""


def gang_bound(state: State, decision: GangBound) -> State:
    """Start an attempt: it holds its placement from here on."""
    job = state.jobs[decision.job_id]
    state = drop_reserved(drop_room(state, job.job_id), job.job_id)
    milli = 0
    for index, share in enumerate(decision.shares):
        node = take(state.nodes[share.node_id], share, job.job_id)
        if index == 0:
            node = replace(node, next_port=decision.master_port + 1)
        state = put_node(state, node)
        milli += milli_of(share)
    state = occupied(state, job.spec.queue, milli)
    attempt = Attempt(
        bound=decision,
        status=(ShareStatus(),) * len(decision.shares),
        bound_at_us=state.now_us,
        committed_at_us=state.now_us,
    )
    job = replace(
        job,
        attempts=decision.attempt,
        attempt=attempt,
        recovering=False,
        committed_step=-1,
        progressed=False,
        uploading=None,
        waited_us=job.waited_us + state.now_us - job.pending_since_us,
    )
    state = put_job(clear_timer(state, "upload", job.job_id), job, pending=state.pending.delete(job.job_id))
    if job.spec.elastic is not None:
        state = follow_interval(state, job.job_id)
    return state if job.spec.max_runtime_us is None else _with_deadline(state, job, job.spec.max_runtime_us)


def _with_deadline(state: State, job: Job, max_runtime_us: int) -> State:
    """Return the state in which the attempt is warned, and then stopped."""
    at_us = state.now_us + max_runtime_us
    first_us = at_us if state.deadlines_from_us is None else min(at_us, state.deadlines_from_us)
    state = replace(state, deadlines=state.deadlines.set(job.job_id, at_us), deadlines_from_us=first_us)
    # A job that runs for less than two warnings is told half-way.
    warning_us = 0 if state.policy is None else min(state.policy.warning_us, max_runtime_us // 2)
    return set_timer(state, "warning", job.job_id, at_us - warning_us) if warning_us > 0 else state


def attempt_stop_ordered(state: State, decision: AttemptStopOrdered) -> State:
    """Note why the attempt stops; its time no longer runs."""
    job = state.jobs[decision.job_id]
    if job.attempt is None:
        return state
    return _put_without_deadline(state, replace(job, attempt=replace(job.attempt, stop=decision)))


def preemption_ordered(state: State, decision: PreemptionOrdered) -> State:
    """Note for whom the attempt gives way; its time no longer runs."""
    job = state.jobs[decision.job_id]
    if job.attempt is None:
        return state
    job = replace(
        job,
        attempt=replace(job.attempt, preempted=decision),
        preemptions=job.preemptions + (decision.reason not in {"held", "retried"}),
        moves=job.moves + (decision.reason == "move"),
        evicted=decision,
        evicted_by=_evictors(job, decision),
    )
    if decision.reason == "straggler" and job.attempt is not None:
        ranks = [slow.rank for slow in job.attempt.slow if state.nodes[slow.node_id].quarantined]
        job = replace(job, replaced_ranks=tuple(sorted({*job.replaced_ranks, *ranks})))
    # It counts for its queue no more: others that only quota kept may start elsewhere now.
    return replace(_put_without_deadline(state, job), placement_due=True)


def _evictors(job: Job, decision: PreemptionOrdered) -> tuple[Evictor, ...]:
    if decision.claimant is None:
        return job.evicted_by
    evictor = Evictor(job_id=decision.claimant, reason=decision.reason)
    return (*(known for known in job.evicted_by if known != evictor), evictor)[-MAX_EVICTORS:]


def attempt_ended(state: State, decision: AttemptEnded) -> State:
    """Take the attempt away; its GPUs were freed by the facts, and what was lost with a node stays held there."""
    return _without_attempt(state, decision.job_id)


def attempt_preempted(state: State, decision: AttemptPreempted) -> State:
    """Take the attempt away; the job waits again, at its old place, and no failure is counted."""
    return _without_attempt(state, decision.job_id)


def _without_attempt(state: State, job_id: str) -> State:
    job = state.jobs[job_id]
    if job.attempt is None:
        return state
    state = _keep_stale(state, job, job.attempt)
    run_us = state.now_us - job.attempt.bound_at_us
    since_evicted_us = job.ran_since_evicted_us + run_us if job.attempt.preempted is None else 0
    job = replace(job, attempt=None, ran_us=job.ran_us + run_us, ran_since_evicted_us=since_evicted_us)
    return _put_without_deadline(state, job)


def _keep_stale(state: State, job: Job, attempt: Attempt) -> State:
    """Remember on their nodes the shares of an ending attempt that were never reported gone; no queue pays for them."""
    for share, status in zip(attempt.bound.shares, attempt.status, strict=True):
        if status.gone:
            continue
        state = occupied(state, job.spec.queue, -milli_of(share))
        node = state.nodes[share.node_id]
        stale = StaleShare(job_id=job.job_id, attempt=attempt.bound.attempt, share=share)
        held = tuple(held for held in node.held if held != job.job_id)
        state = put_node(state, replace(node, held=held, stale=(*node.stale, stale)))
    return state


def _put_without_deadline(state: State, job: Job) -> State:
    if job.job_id in state.deadlines:
        state = replace(state, deadlines=state.deadlines.delete(job.job_id))
    return put_job(clear_timer(clear_timer(state, "elastic", job.job_id), "warning", job.job_id), job)


def job_requeued(state: State, decision: JobRequeued) -> State:
    """Let the job wait again, at its old place."""
    before = state.jobs[decision.job_id]
    job = replace(
        before,
        recovering=before.recovering or not _gave_way(before, decision.attempt),
        failures_in_row=decision.failures_in_row,
        excused_in_row=decision.excused_in_row,
        immediate_in_row=decision.immediate_in_row,
        pending_since_us=state.now_us,
    )
    if job.uploading is not None and state.policy is not None:
        job = barred(job, "upload")
        state = set_timer(state, "upload", job.job_id, state.now_us + state.policy.upload_deadline_us)
    state = put_job(
        state,
        job,
        pending=state.pending.set(job.job_id, True),  # noqa: FBT003 - a map used as a set
        placement_due=True,
    )
    return places_given_up(state, [job])


def _gave_way(job: Job, attempt: int) -> bool:
    """Whether an attempt gave way to others: it has lost nothing to a failure, and waits like everyone."""
    return job.evicted is not None and job.evicted.attempt == attempt and job.evicted.reason != "straggler"


def job_ended(state: State, decision: JobEnded) -> State:
    """Keep only the job's outcome, and that no longer than the answer to its command."""
    job = state.jobs.get(decision.job_id)
    if job is None:
        return dependencies.ended(_array_ended(state, decision), decision.job_id, decision.outcome)
    forgotten = job.answer_forgotten
    if job.array_id:
        forgotten = state.arrays[job.array_id].answer_forgotten
        state = task_ended(state, job, succeeded=decision.outcome == "succeeded")
    if job.attempts:
        state = replace(state, durations=observed(state.durations, job.spec.queue, job.spec.gpus, job.ran_us))
    state = drop_reserved(drop_room(state, job.job_id), job.job_id)
    state = clear_timer(state, "upload", job.job_id)
    state = drop_job(
        state,
        job.job_id,
        pending=state.pending.delete(job.job_id) if job.job_id in state.pending else state.pending,
        touched=state.touched.delete(job.job_id) if job.job_id in state.touched else state.touched,
        ended=state.ended if forgotten else state.ended.set(job.job_id, decision.outcome),
    )
    return dependencies.ended(state, job.job_id, decision.outcome)


def _array_ended(state: State, decision: JobEnded) -> State:
    array = state.arrays[decision.job_id]
    return replace(
        state,
        arrays=state.arrays.delete(array.array_id),
        finished=state.finished.delete(array.array_id),
        ended=state.ended if array.answer_forgotten else state.ended.set(array.array_id, decision.outcome),
    )
