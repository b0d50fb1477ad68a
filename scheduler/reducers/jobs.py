"""What rounds do to jobs: bind, stop, end an attempt, requeue, end."""

from msgspec.structs import replace

from gangline.events.decisions import AttemptEnded, AttemptStopOrdered, GangBound, JobEnded, JobRequeued
from gangline.scheduler.reducers.nodes import take
from gangline.scheduler.state import Attempt, ShareStatus, State


def gang_bound(state: State, decision: GangBound) -> State:
    """Start an attempt: it holds its placement from here on."""
    job = state.jobs[decision.job_id]
    nodes = state.nodes
    for index, share in enumerate(decision.shares):
        node = take(nodes[share.node_id], share, job.job_id)
        if index == 0:
            node = replace(node, next_port=decision.master_port + 1)
        nodes = nodes.set(share.node_id, node)
    attempt = Attempt(
        bound=decision,
        status=(ShareStatus(),) * len(decision.shares),
    )
    job = replace(
        job, attempts=decision.attempt, attempt=attempt, recovering=False, committed_step=-1, progressed=False
    )
    state = replace(
        state,
        jobs=state.jobs.set(job.job_id, job),
        pending=state.pending.delete(job.job_id),
        nodes=nodes,
    )
    if job.spec.max_runtime_us is None:
        return state
    at_us = state.now_us + job.spec.max_runtime_us
    first_us = at_us if state.deadlines_from_us is None else min(at_us, state.deadlines_from_us)
    return replace(state, deadlines=state.deadlines.set(job.job_id, at_us), deadlines_from_us=first_us)


def attempt_stop_ordered(state: State, decision: AttemptStopOrdered) -> State:
    """Note why the attempt stops; its time no longer runs."""
    job = state.jobs[decision.job_id]
    if job.attempt is None:
        return state
    job = replace(job, attempt=replace(job.attempt, stop=decision))
    deadlines = state.deadlines
    if job.job_id in deadlines:
        deadlines = deadlines.delete(job.job_id)
    return replace(state, jobs=state.jobs.set(job.job_id, job), deadlines=deadlines)


def attempt_ended(state: State, decision: AttemptEnded) -> State:
    """Take the attempt away; its GPUs were freed by the facts."""
    job = replace(state.jobs[decision.job_id], attempt=None)
    deadlines = state.deadlines
    if job.job_id in deadlines:
        deadlines = deadlines.delete(job.job_id)
    return replace(state, jobs=state.jobs.set(job.job_id, job), deadlines=deadlines)


def job_requeued(state: State, decision: JobRequeued) -> State:
    """Let the job wait again, at its old place."""
    job = replace(state.jobs[decision.job_id], recovering=True, failures_in_row=decision.failures_in_row)
    return replace(
        state,
        jobs=state.jobs.set(job.job_id, job),
        pending=state.pending.set(job.job_id, True),  # noqa: FBT003 - a map used as a set
        placement_due=True,
    )


def job_ended(state: State, decision: JobEnded) -> State:
    """Keep only the job's outcome, and that no longer than the answer to its command."""
    job = state.jobs[decision.job_id]
    return replace(
        state,
        jobs=state.jobs.delete(job.job_id),
        pending=state.pending.delete(job.job_id) if job.job_id in state.pending else state.pending,
        touched=state.touched.delete(job.job_id) if job.job_id in state.touched else state.touched,
        ended=state.ended if job.answer_forgotten else state.ended.set(job.job_id, decision.outcome),
    )
