"""What a live attempt has, and what it is told to do."""

from collections.abc import Mapping
from types import MappingProxyType

from gangline.events.amounts import milli_shown
from gangline.events.policy import Policy
from gangline.events.types import PreemptionReason
from gangline.scheduler.elastic import size_of
from gangline.scheduler.explanation.ends import basis
from gangline.scheduler.explanation.words import named, span
from gangline.scheduler.state import Attempt, Job, State
from gangline.scheduler.views import Views
from gangline.scheduler.views.uses import quota_is_on

WHY: Mapping[PreemptionReason, str] = MappingProxyType(
    {
        "reclaim": "a job within its queue's guarantee takes back what was borrowed",
        "priority": "a job of the same queue has a higher priority",
        "service": "a job that has had less service goes first",
        "recovery": "a gang that failed needs nodes for its next attempt",
        "first_start": "a gang has waited long for its first start",
        "fill": "a larger gang takes the wholly free nodes together with its own",
        "batch": "many small jobs have waited for as much together",
        "move": "it moves into a hole held for it, so that its node opens",
        "grow": "it is given more GPUs",
        "shrink": "it is left with fewer GPUs, for others to start",
        "drain": "an operator drains its node",
        "straggler": "the node of a slow rank is replaced",
        "held": "its user holds it",
        "retried": "its user has it tried again",
    }
)


def running_text(job: Job, attempt: Attempt) -> str:
    """Return where an attempt runs, or why it is told to stop and who is left of it."""
    shares = attempt.bound.shares
    nodes = ", ".join(dict.fromkeys(share.node_id for share in shares))
    left = [share.node_id for share, status in zip(shares, attempt.status, strict=True) if not status.gone]
    number = f"attempt {attempt.bound.attempt}"
    gone = f"its ranks are not reported gone from {', '.join(dict.fromkeys(left)) or 'any node'}"
    if attempt.preempted is not None:
        order = attempt.preempted
        for_whom = "" if order.claimant is None else f" for {order.claimant}"
        return f"{number} is told to give way{for_whom} ({order.reason}: {WHY[order.reason]}); {gone}"
    if attempt.stop is None:
        return f"{number} runs on {nodes}"
    why = "it was cancelled" if job.cancelled else attempt.failure or attempt.stop.reason
    return f"{number} is told to stop ({why}); {gone}"


def running_notes(state: State, policy: Policy | None, views: Views, job: Job, attempt: Attempt) -> list[str]:
    """Return how long it runs, how its queue stands, and when it is expected to end."""
    notes = [f"it runs for {span(state.now_us - attempt.bound_at_us)}"]
    if not attempt.is_stopping:
        notes.append(basis(state, job, attempt))
    if job.spec.elastic is not None:
        bounds = job.spec.elastic
        notes.append(f"it has {size_of(attempt)} GPUs, and may have {bounds.min_gpus} to {bounds.max_gpus}")
    if policy is not None and quota_is_on(policy):
        uses = views.uses
        for _, gpu_type, milli, _ in uses.charges.get(job.job_id, ()):
            guarantee = uses.tree.limits(job.spec.queue, gpu_type).guarantee_milli
            used = uses.use[job.spec.queue, gpu_type]
            stands = "within its guarantee" if used <= guarantee else "borrowing"
            notes.append(
                f"it counts with {milli_shown(milli)} GPUs of {gpu_type or 'no type'} for queue '{job.spec.queue}', "
                f"which uses {milli_shown(used)} of {milli_shown(guarantee)} guaranteed: {stands}"
            )
    return notes


def history_notes(job: Job) -> list[str]:
    """Return how often it gave way, and the last time for whom and why."""
    notes = []
    if job.evicted is not None:
        order = job.evicted
        for_whom = "" if order.claimant is None else f" for {order.claimant}"
        times = f"it gave way {job.preemptions} times, " if job.preemptions > 1 else "it gave way, "
        notes.append(f"{times}last in attempt {order.attempt}{for_whom} ({order.reason}: {WHY[order.reason]})")
    if job.failures_in_row:
        notes.append(f"{job.failures_in_row} of its attempts failed in a row without a newer checkpoint")
    if job.evicted_by:
        notes.append(f"it does not take back its GPUs from {named([one.job_id for one in job.evicted_by])}")
    return notes
