"""How often a job that fails is tried again: its own failures, those that are not, and those right after the start.

Only failures in a row without a newer committed checkpoint count: a job that gets on may fail for ever.
"""

from typing import NamedTuple

from gangline.events.policy import Policy
from gangline.events.types import SECOND_US
from gangline.scheduler.round import Round
from gangline.scheduler.state import Attempt, Job


class Failures(NamedTuple):
    """Of a job in a row: see `gangline.scheduler.state.Job`."""

    own: int
    excused: int
    immediate: int


def so_far(job: Job) -> Failures:
    """Return a job's failures in a row, none if its latest attempt has got on."""
    if job.progressed:
        return Failures(0, 0, 0)
    return Failures(job.failures_in_row, job.excused_in_row, job.immediate_in_row)


def count(round_: Round, policy: Policy, job: Job, attempt: Attempt) -> Failures:
    """Return a job's failures in a row, that of this attempt included."""
    before = so_far(job)
    if attempt.blame != "job":
        return before._replace(excused=before.excused + 1)
    ran_us = round_.state.now_us - attempt.bound_at_us
    immediate = before.immediate + 1 if ran_us <= policy.immediate_us and not job.progressed else 0
    return Failures(before.own + 1, before.excused, immediate)


def too_many(policy: Policy, job: Job, failures: Failures) -> str | None:
    """Return why the job is not tried again, or None."""
    retries = policy.retries if job.spec.retries is None else job.spec.retries
    if failures.own > retries:
        return (
            f"that was failure {failures.own} in a row without a newer committed checkpoint, and retries is {retries}"
        )
    if 0 < policy.immediate_max <= failures.immediate:
        within_s = policy.immediate_us // SECOND_US
        return (
            f"that was failure {failures.immediate} in a row within {within_s} s of its start, "
            f"and immediate_max is {policy.immediate_max}: it would go on for ever"
        )
    if failures.excused > policy.excused_retries:
        return (
            f"that was failure {failures.excused} in a row that was not its own, without a newer committed checkpoint, "
            f"and excused_retries is {policy.excused_retries}"
        )
    return None
