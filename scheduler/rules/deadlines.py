"""An attempt that has run for its max_runtime is stopped."""

from gangline.events.decisions import AttemptStopOrdered
from gangline.scheduler.round import Round
from gangline.scheduler.rules.attempts import grace_us


def decide(round_: Round) -> None:
    """Order every attempt to stop whose time is over."""
    for job_id, at_us in sorted(round_.state.deadlines.items()):
        job = round_.state.jobs[job_id]
        if at_us > round_.state.now_us or job.attempt is None or job.attempt.failure is not None:
            continue
        stop = AttemptStopOrdered(
            job_id=job_id, attempt=job.attempt.bound.attempt, reason="max_runtime", grace_us=grace_us(round_, job)
        )
        if not round_.emit(stop):
            return
