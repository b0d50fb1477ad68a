"""An attempt that has run for its max_runtime is stopped."""

from gangline.events.decisions import AttemptStopOrdered
from gangline.scheduler.grace import grace_us
from gangline.scheduler.round import Round
from gangline.scheduler.rules.attempts import is_ending
from gangline.scheduler.state import State


def are_over(state: State) -> bool:
    """Whether some attempt's time may be over."""
    return state.deadlines_from_us is not None and state.deadlines_from_us <= state.now_us


def decide(round_: Round) -> None:
    """Order every attempt to stop whose time is over, and that does not end for another reason in this round."""
    if not are_over(round_.state):
        return
    for job_id, at_us in sorted(round_.state.deadlines.items()):
        job = round_.state.jobs[job_id]
        if at_us > round_.state.now_us or job.attempt is None or is_ending(job, job.attempt):
            continue
        stop = AttemptStopOrdered(
            job_id=job_id, attempt=job.attempt.bound.attempt, reason="max_runtime", grace_us=grace_us(round_, job)
        )
        if not round_.emit(stop):
            return
