"""Which queue keeps a job from GPUs of a type: its limit, what of that is used, by whom, and when enough is free."""

from typing import NamedTuple

from gangline.events.amounts import milli_shown
from gangline.scheduler.explanation.ends import expected
from gangline.scheduler.explanation.question import Question
from gangline.scheduler.explanation.values import Change
from gangline.scheduler.explanation.words import named
from gangline.scheduler.kept_quota import kept_from
from gangline.scheduler.reservations import attempt_end_us
from gangline.scheduler.views.uses import quota_is_on


class QuotaBar(NamedTuple):
    """The topmost queue whose limit a job would pass."""

    path: str
    gpu_type: str
    what: str
    """`ceiling` or `guarantee`."""
    limit_milli: int
    used_milli: int
    asked_milli: int
    kept_for: str = ""
    """The gang for which the rest of the limit is kept, if it is not the limit alone that bars the job."""
    kept_milli: int = 0

    @property
    def over_milli(self) -> int:
        """By how much its use has to fall."""
        return self.used_milli + self.asked_milli + self.kept_milli - self.limit_milli


def bars_of(question: Question) -> list[QuotaBar]:
    """Return what bars a job, one for each type that it accepts; nothing if some type is open to it."""
    uses, milli = question.views.uses, question.shape.milli
    if not quota_is_on(question.policy) or not milli:
        return []
    found = []
    for gpu_type in question.shape.gpu_types or uses.tree.types:
        bar = _bar(question, gpu_type, milli)
        if bar is None:
            return []
        found.append(bar)
    return found


def _bar(question: Question, gpu_type: str, milli: int) -> QuotaBar | None:
    uses, spec = question.views.uses, question.job.spec
    for path in uses.tree.prefixes(spec.queue):
        limits = uses.tree.limits(path, gpu_type)
        used = uses.use[path, gpu_type]
        if limits.ceiling_milli is not None and used + milli > limits.ceiling_milli:
            return QuotaBar(path, gpu_type, "ceiling", limits.ceiling_milli, used, milli)
        fixed = uses.fixed[path, gpu_type]
        if not spec.preemptible and fixed + milli > limits.guarantee_milli:
            return QuotaBar(path, gpu_type, "guarantee", limits.guarantee_milli, fixed, milli)
    kept = kept_from(question.state, question.policy, question.views, question.job, gpu_type)
    if kept is None:
        return None
    limits = uses.tree.limits(kept.path, gpu_type)
    if kept.what == "ceiling":
        used, limit = uses.use[kept.path, gpu_type], limits.ceiling_milli or 0
    else:
        used, limit = uses.fixed[kept.path, gpu_type], limits.guarantee_milli
    return QuotaBar(kept.path, gpu_type, kept.what, limit, used, milli, kept.job_id, kept.milli)


def sentence(question: Question, bar: QuotaBar) -> str:
    """Return what a limit is, and who uses it up."""
    of = f" of {bar.gpu_type}" if len(question.views.uses.tree.types) > 1 else ""
    users = _users(question, bar)
    by = f" (by {named([f'{job_id} {milli_shown(milli)}' for job_id, milli in users])})" if users else ""
    limit, used, asked = milli_shown(bar.limit_milli), milli_shown(bar.used_milli), milli_shown(bar.asked_milli)
    both = milli_shown(bar.used_milli + bar.asked_milli)
    if bar.kept_for:
        return (
            f"queue '{bar.path}' has a {bar.what} of {limit} GPUs{of} and uses {used}{by}; "
            f"{milli_shown(bar.kept_milli)} are kept for {bar.kept_for}, which has waited too long for others to start"
        )
    if bar.what == "ceiling":
        return (
            f"queue '{bar.path}' has a ceiling of {limit} GPUs{of} and uses {used}{by}"
            f"; with the {asked} of this job it would use {both}"
        )
    return (
        f"it is not preemptible, and so may not borrow: queue '{bar.path}' has a guarantee of {limit} "
        f"GPUs{of}, of which jobs that are not preemptible use {used}{by}; with the {asked} of this "
        f"job they would use {both}"
    )


def change(question: Question, bars: list[QuotaBar]) -> Change:
    """Return which jobs' ends let the use of a queue fall far enough, the soonest of the types."""
    bar, jobs, at_us = min(
        ((bar, *_enough(question, bar)) for bar in bars), key=lambda one: (one[2] is None, one[2] or 0, one[0].gpu_type)
    )
    of = f" of {bar.gpu_type}" if len(question.views.uses.tree.types) > 1 else ""
    falls = f"the use of queue '{bar.path}' has to fall by {milli_shown(bar.over_milli)} GPUs{of}"
    raised = f"`gangline queue set {bar.path} --{bar.what} N` raises its {bar.what}"
    if at_us is None:
        limit = f"this job alone is above the {bar.what}" if bar.asked_milli > bar.limit_milli else falls
        return Change(kind="quota", text=f"{limit}: {raised}", subjects=(bar.path,))
    left_us = max(at_us - question.state.now_us, 0)
    ends = f"which it does when {named(jobs)} {'ends' if len(jobs) == 1 else 'end'}"
    when = expected(question.state, jobs, left_us)
    return Change(kind="quota", text=f"{falls}, {ends}, {when}; or {raised}", in_us=left_us, subjects=tuple(jobs))


def _users(question: Question, bar: QuotaBar) -> list[tuple[str, int]]:
    """Return the jobs below a queue that count for its use, those with the most first."""
    found = []
    for job_id, charge in sorted(question.views.uses.charges.items()):
        milli = sum(
            milli
            for queue, gpu_type, milli, preemptible in charge
            if gpu_type == bar.gpu_type
            and (queue == bar.path or queue.startswith(f"{bar.path}/"))
            and (bar.what == "ceiling" or not preemptible)
        )
        if milli:
            found.append((job_id, milli))
    return sorted(found, key=lambda one: (-one[1], one[0]))


def _enough(question: Question, bar: QuotaBar) -> tuple[list[str], int | None]:
    """Return the jobs that have to end first, and when the last of them is expected to; None if that is not enough."""
    state = question.state
    ends = []
    for job_id, milli in _users(question, bar):
        job = state.jobs[job_id]
        if job.attempt is not None:
            ends.append((attempt_end_us(state, job, job.attempt), job_id, milli))
    freed, jobs = 0, []
    for at_us, job_id, milli in sorted(ends):
        freed += milli
        jobs.append(job_id)
        if freed >= bar.over_milli:
            return jobs, at_us
    return [], None
