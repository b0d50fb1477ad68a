"""When running and pending jobs are expected to end, and whether a reservation still lets others in."""

from gangline.events.policy import Policy
from gangline.scheduler.durations import expected_us
from gangline.scheduler.state import Attempt, Job, State


def is_hard(state: State, policy: Policy, job: Job) -> bool:
    """Whether a gang has waited so long that nothing new starts on the nodes reserved for it."""
    return state.now_us - job.pending_since_us >= policy.reservation_hard_us


def may_reserve(state: State, policy: Policy, job: Job) -> bool:
    """Whether a job has waited so long that nodes are reserved for it where nobody can give way."""
    if "reservation" not in policy.rules or not (job.spec.gpus > 1 or job.spec.roles):
        return False
    return state.now_us - job.pending_since_us >= policy.reservation_after_us


def starves(state: State, policy: Policy, job: Job) -> bool:
    """Whether a job takes from all levels: else what is reserved for it, or would be, idles until others are done."""
    return may_reserve(state, policy, job) and (job.job_id in state.reserved or is_hard(state, policy, job))


def expected_end_us(state: State, job: Job) -> int | None:
    """Return the core time at which a pending job would end if it started now; None if nothing is known of such jobs.

    That is its max_runtime if it declares one, else what nine of ten like it that ran as long did not exceed.
    """
    spec = job.spec
    if spec.max_runtime_us is not None:
        return state.now_us + spec.max_runtime_us
    in_all_us = expected_us(state.durations, spec.queue, spec.gpus, job.ran_us)
    return None if in_all_us is None else state.now_us + max(in_all_us - job.ran_us, 0)


def attempt_end_us(state: State, job: Job, attempt: Attempt) -> int:
    """Return the core time at which a live attempt is expected to be over.

    One of which nothing is known is expected to run as long again as it has.
    """
    if attempt.is_stopping:
        return state.now_us
    spec = job.spec
    if spec.max_runtime_us is not None:
        return attempt.bound_at_us + spec.max_runtime_us
    age_us = job.ran_us + state.now_us - attempt.bound_at_us
    in_all_us = expected_us(state.durations, spec.queue, spec.gpus, age_us)
    return state.now_us + max((2 * age_us if in_all_us is None else in_all_us) - age_us, 0)
