"""When running jobs are expected to end, and on what that rests, in words."""

from collections.abc import Sequence

from gangline.scheduler.durations import expected_us
from gangline.scheduler.explanation.words import span
from gangline.scheduler.reservations import attempt_end_us
from gangline.scheduler.state import Attempt, Job, State


def left_us(state: State, job: Job, attempt: Attempt) -> int:
    """Return for how long a live attempt is expected to run on."""
    return max(attempt_end_us(state, job, attempt) - state.now_us, 0)


def is_guess(state: State, job: Job, attempt: Attempt) -> bool:
    """Whether nothing is known of how long such a job runs: then it is taken to run as long again as it has."""
    if attempt.is_stopping or job.spec.max_runtime_us is not None:
        return False
    age_us = job.ran_us + state.now_us - attempt.bound_at_us
    return expected_us(state.durations, job.spec.queue, job.spec.gpus, age_us) is None


def basis(state: State, job: Job, attempt: Attempt) -> str:
    """Return when an attempt is expected to end, and why."""
    if attempt.is_stopping:
        return "it is stopping"
    if is_guess(state, job, attempt):
        return "nothing is known of how long such jobs run"
    rests = "its max_runtime" if job.spec.max_runtime_us is not None else "how long nine of ten such jobs have run"
    return f"by {rests} it is expected to end in {span(left_us(state, job, attempt))}"


def expected(state: State, job_ids: Sequence[str], in_us: int) -> str:
    """Return when jobs are expected to end, or that nobody can say."""
    attempts = [(job, job.attempt) for one in job_ids if (job := state.jobs.get(one)) is not None]
    if any(attempt is not None and is_guess(state, job, attempt) for job, attempt in attempts):
        return "and nothing is known of how long such jobs run"
    return f"expected in {span(in_us)}"
