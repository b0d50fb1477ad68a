"""An attempt is told some time before its max_runtime is over, so that it can save and end by itself."""

from gangline.events.decisions import RuntimeWarned
from gangline.scheduler.round import Round
from gangline.scheduler.timers import due


def decide(round_: Round) -> None:
    """Warn every attempt whose time is nearly over."""
    state = round_.state
    for job_id in due(state, "warning"):
        attempt, ends_at_us = state.jobs[job_id].attempt, state.deadlines[job_id]
        if attempt is None:
            continue
        left_us = max(ends_at_us - state.now_us, 0)
        warned = RuntimeWarned(job_id=job_id, attempt=attempt.bound.attempt, ends_at_us=ends_at_us, left_us=left_us)
        if not round_.emit(warned):
            return
