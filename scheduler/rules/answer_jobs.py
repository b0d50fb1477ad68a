"""Answers to commands about jobs: submit, cancel, hold, release, retry, reprioritise.

A command that names an array is meant for each of its jobs.
"""

from gangline.events import control
from gangline.events.decisions import (
    CancelAccepted,
    CommandExpired,
    JobAdmitted,
    JobRejected,
    PreemptionOrdered,
    ReservationDropped,
    RoomReleased,
)
from gangline.events.ids import job_id as job_id_of
from gangline.events.policy import Policy
from gangline.events.types import Decision, PreemptionReason
from gangline.scheduler.arrays import members
from gangline.scheduler.room.orders import order
from gangline.scheduler.round import Round
from gangline.scheduler.rules.admission import MAX_PRIORITY, admit
from gangline.scheduler.rules.refusals import Asked, shown
from gangline.scheduler.state import Job, State


def submit(round_: Round, policy: Policy, asked: Asked, command: control.SubmitJob) -> tuple[Decision, ...]:
    """Admit a job that could start some day."""
    state = round_.state
    new_job = job_id_of(state.log_id, asked.command_id)
    if new_job in state.jobs or new_job in state.arrays or new_job in state.ended:
        return (CommandExpired(command_id=asked.command_id, control_index=asked.control_index),)
    refusal = admit(round_, policy, new_job, command.spec)
    if refusal is None:
        return (JobAdmitted(command_id=asked.command_id, control_index=asked.control_index, job_id=new_job),)
    return (
        JobRejected(
            command_id=asked.command_id,
            control_index=asked.control_index,
            key=refusal.key,
            value=refusal.value,
            limit=refusal.limit,
            message=refusal.message,
        ),
    )


def cancel(round_: Round, _policy: Policy, asked: Asked, command: control.CancelJob) -> tuple[Decision, ...]:
    """Cancel what has not ended."""
    absent = _absent(round_.state, command.job_id, "cancelled")
    if absent is not None:
        return asked.refused(absent)
    return (CancelAccepted(command_id=asked.command_id, control_index=asked.control_index, job_id=command.job_id),)


def hold(round_: Round, policy: Policy, asked: Asked, command: control.HoldJob) -> tuple[Decision, ...]:
    """Keep a job from starting; if it runs, its ranks save and exit, and it is requeued."""
    state = round_.state
    absent = _absent(state, command.job_id, "held") or _cancelled(state, command.job_id)
    if absent is not None:
        return asked.refused(absent)
    jobs = [state.jobs[member] for member in members(state, command.job_id)]
    if all(job.held for job in jobs):
        return asked.refused(
            f"job '{command.job_id}' is held already: `gangline job release {command.job_id}` lets it start"
        )
    cause = "its job is held"
    freed = [RoomReleased(job_id=job.job_id, cause=cause) for job in jobs if job.job_id in state.room]
    dropped = [ReservationDropped(job_id=job.job_id, cause=cause) for job in jobs if job.job_id in state.reserved]
    return (asked.accepted(), *freed, *dropped, *_requeue(state, policy, jobs, "held"))


def release(round_: Round, _policy: Policy, asked: Asked, command: control.ReleaseJob) -> tuple[Decision, ...]:
    """Let a held job start."""
    state = round_.state
    absent = _absent(state, command.job_id, "released") or _cancelled(state, command.job_id)
    if absent is not None:
        return asked.refused(absent)
    if not any(state.jobs[member].held for member in members(state, command.job_id)):
        return asked.refused(
            f"job '{command.job_id}' is not held: `gangline why {command.job_id}` says what else it waits for"
        )
    return (asked.accepted(),)


def retry(round_: Round, policy: Policy, asked: Asked, command: control.RetryJob) -> tuple[Decision, ...]:
    """Forgive a job's failures, and begin its next attempt."""
    state = round_.state
    absent = _absent(state, command.job_id, "retried") or _cancelled(state, command.job_id)
    if absent is not None:
        return asked.refused(absent)
    jobs = [state.jobs[member] for member in members(state, command.job_id)]
    return (asked.accepted(), *_requeue(state, policy, jobs, "retried"))


def reprioritise(
    round_: Round, _policy: Policy, asked: Asked, command: control.ReprioritiseJob
) -> tuple[Decision, ...]:
    """Give a job another priority inside its queue."""
    absent = _absent(round_.state, command.job_id, "reprioritised")
    if absent is not None:
        return asked.refused(absent)
    if abs(command.priority) > MAX_PRIORITY:
        return asked.refused(
            f"priority is {command.priority}, but it has to be -{MAX_PRIORITY} to {MAX_PRIORITY}: name one of these"
        )
    return (asked.accepted(),)


def _absent(state: State, job_id: str, done: str) -> str | None:
    """Return why nothing can be done to a job that is not there, or None."""
    if job_id in state.jobs or job_id in state.arrays:
        return None
    outcome = state.ended.get(job_id)
    if outcome is None:
        return f"there is no job '{shown(job_id)}' that could be {done}: `gangline jobs` lists those there are"
    if done == "cancelled":
        return f"job '{job_id}' has already ended ({outcome}): there is nothing left to cancel"
    return (
        f"job '{job_id}' has already ended ({outcome}), so it cannot be {done}: "
        f"`gangline job clone {job_id}` submits it again"
    )


def _cancelled(state: State, job_id: str) -> str | None:
    jobs = [state.jobs[member] for member in members(state, job_id)]
    if not jobs or all(job.cancelled for job in jobs):
        return (
            f"job '{job_id}' is cancelled, and ends as soon as its ranks are gone: `gangline job clone {job_id}` "
            "submits it again"
        )
    return None


def _requeue(state: State, policy: Policy, jobs: list[Job], reason: PreemptionReason) -> list[PreemptionOrdered]:
    """Return the orders to stop those that run."""
    return [
        order(state, policy, job.job_id, reason)
        for job in jobs
        if job.attempt is not None and not job.attempt.is_stopping and job.attempt.failure is None
    ]
