"""An interactive job ends when its agent has found it idle for its time-out."""

from gangline.events.decisions import AttemptStopOrdered
from gangline.scheduler.grace import grace_us
from gangline.scheduler.round import Round
from gangline.scheduler.rules.attempts import is_ending

RULE = "interactive"


def decide(round_: Round) -> None:
    """Stop every attempt that was reported idle, and that does not end for another reason in this round."""
    if round_.policy is None or RULE not in round_.policy.rules:
        return
    for job_id in sorted(round_.state.touched):
        job = round_.state.jobs.get(job_id)
        attempt = None if job is None else job.attempt
        if job is None or attempt is None or attempt.idle_us is None:
            continue
        if attempt.is_stopping or is_ending(job, attempt):
            continue
        stop = AttemptStopOrdered(
            job_id=job_id, attempt=attempt.bound.attempt, reason="idle", grace_us=grace_us(round_, job)
        )
        if not round_.emit(stop):
            return
