"""What becomes of attempts: stopped as a whole on a lost rank, then requeued or ended."""

from collections.abc import Mapping
from types import MappingProxyType

from gangline.events.decisions import (
    AttemptEnded,
    AttemptPreempted,
    AttemptStopOrdered,
    JobEnded,
    JobRequeued,
    PreemptionOrdered,
    RoomHeld,
)
from gangline.events.types import SECOND_US, Decision, Outcome, StopReason
from gangline.scheduler.grace import grace_us
from gangline.scheduler.recovery import hold_for
from gangline.scheduler.round import Round
from gangline.scheduler.rules.retries import Failures, count, so_far, too_many
from gangline.scheduler.state import Attempt, Job

_CAUSES: Mapping[str, str] = MappingProxyType(
    {"drain": "its node is drained", "held": "it is held", "retried": "a new attempt was asked for", "grow": "it grows"}
)
"""What is said of an attempt that gave way to nobody, but to a command."""


def decide(round_: Round) -> None:
    """Stop what has failed or is cancelled, end what is gone."""
    for job_id in sorted(round_.state.touched):
        job = round_.state.jobs.get(job_id)
        if job is None:
            continue
        group = _follow(round_, job)
        if group and not round_.emit(*group):
            return


def is_ending(job: Job, attempt: Attempt) -> bool:
    """Whether the attempt is to stop, or is over, for what was reported or commanded."""
    return job.cancelled or attempt.failure is not None or _is_over(attempt)


def _is_over(attempt: Attempt) -> bool:
    """Whether nothing of it is waited for: what was lost with its node is not."""
    return all(status.is_over for status in attempt.status)


def _follow(round_: Round, job: Job) -> tuple[Decision, ...]:
    attempt = job.attempt
    if attempt is None:
        again = " again" if job.attempts else ""
        return _end(job, "cancelled", f"cancelled before it could start{again}") if job.cancelled else ()
    if _is_over(attempt):
        return _end_attempt(round_, job, attempt)
    if attempt.stop is None and is_ending(job, attempt):
        reason: StopReason = "rank_failed"
        if job.cancelled:
            reason = "cancelled"
        elif any(status.lost for status in attempt.status):
            reason = "node_lost"
        stop = AttemptStopOrdered(
            job_id=job.job_id, attempt=attempt.bound.attempt, reason=reason, grace_us=grace_us(round_, job)
        )
        return (stop, *(() if job.cancelled else _held(round_, job, attempt)))
    return ()


def _held(round_: Round, job: Job, attempt: Attempt) -> tuple[RoomHeld, ...]:
    """Return what is held for the next attempt of a job of which this one fails, if there is to be one."""
    policy = round_.policy
    if policy is None or not attempt.retryable or attempt.preempted is not None:
        return ()
    if too_many(policy, job, count(round_, policy, job, attempt)) is not None:
        return ()
    held = hold_for(round_, job, attempt)
    return () if held is None else (held,)


def _end_attempt(round_: Round, job: Job, attempt: Attempt) -> tuple[Decision, ...]:
    stopped = attempt.stop.reason if attempt.stop is not None else None
    if stopped == "cancelled" or (job.cancelled and (attempt.failure is not None or attempt.preempted is not None)):
        return _ended(job, attempt, "cancelled", "cancelled")
    if stopped == "max_runtime":
        limit_s = (job.spec.max_runtime_us or 0) // SECOND_US
        return _ended(job, attempt, "failed", f"it ran for its max_runtime of {limit_s} s")
    if stopped == "idle":
        idle_s = (attempt.idle_us or 0) // SECOND_US
        return _ended(job, attempt, "succeeded", f"it was idle for {idle_s} s, and is interactive")
    if attempt.preempted is not None:
        return _requeue(job, attempt, attempt.preempted)
    if attempt.failure is None:
        return _ended(job, attempt, "succeeded", "every rank exited with code 0")
    if not attempt.retryable or round_.policy is None:
        return _ended(job, attempt, "failed", attempt.failure)
    failures = count(round_, round_.policy, job, attempt)
    why = too_many(round_.policy, job, failures)
    if why is not None:
        return _ended(job, attempt, "failed", f"{attempt.failure}; {why}")
    number = attempt.bound.attempt
    return (
        AttemptEnded(job_id=job.job_id, attempt=number, outcome="failed", cause=attempt.failure),
        _requeued(job, number, failures, attempt.failure),
        *_held(round_, job, attempt),
    )


def _requeue(job: Job, attempt: Attempt, order: PreemptionOrdered) -> tuple[Decision, ...]:
    """Let a preempted job wait at its old place. Whether it had finished meanwhile, its next attempt finds out."""
    cause = _CAUSES.get(order.reason, f"it gave way ({order.reason})")
    cause += f" to {order.claimant}" if order.claimant is not None else ""
    number = attempt.bound.attempt
    return (
        AttemptPreempted(job_id=job.job_id, attempt=number, reason=order.reason, cause=cause),
        _requeued(job, number, so_far(job), cause),
    )


def _requeued(job: Job, attempt: int, failures: Failures, cause: str) -> JobRequeued:
    return JobRequeued(
        job_id=job.job_id,
        attempt=attempt,
        failures_in_row=failures.own,
        excused_in_row=failures.excused,
        immediate_in_row=failures.immediate,
        cause=cause,
    )


def _ended(job: Job, attempt: Attempt, outcome: Outcome, cause: str) -> tuple[Decision, ...]:
    ended = AttemptEnded(job_id=job.job_id, attempt=attempt.bound.attempt, outcome=outcome, cause=cause)
    return (ended, *_end(job, outcome, cause))


def _end(job: Job, outcome: Outcome, cause: str) -> tuple[Decision, ...]:
    return (JobEnded(job_id=job.job_id, outcome=outcome, cause=cause, attempts=job.attempts),)
