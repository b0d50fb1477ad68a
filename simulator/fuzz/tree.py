"""What queues have and use by the log, read from the specification: guarantees, ceilings, and who counts for whom.

A job counts by what its attempt holds, until it is told to give way; from then on what was held for its claimant counts
for that one. Whatever is held for a job counts instead of its attempt.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from gangline.events.policy import Policy, Quota
from gangline.events.types import WHOLE_MILLI, Share
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.records import JobRecord, milli_of


class Uses(NamedTuple):
    """Thousandths of GPUs by (queue, GPU type); what is below a queue counts for it."""

    all: Counter[tuple[str, str]]
    fixed: Counter[tuple[str, str]]
    """Of jobs that are not preemptible."""


def above(path: str) -> list[str]:
    """Return a queue and those above it, the topmost first."""
    parts = path.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def types_of(ledger: Ledger) -> list[str]:
    """Return the types of GPUs that there are."""
    return sorted({node.has.gpu_type for node in ledger.nodes.values()})


def quota_of(policy: Policy, path: str, gpu_type: str) -> Quota:
    """Return what a queue states for a type."""
    quotas = [quota for queue in policy.queues if queue.path == path for quota in queue.quotas]
    named = [quota for quota in quotas if quota.gpu_type == gpu_type]
    rest = [quota for quota in quotas if not quota.gpu_type]
    return (named or rest or [Quota()])[0]


def guarantee_of(ledger: Ledger, policy: Policy, path: str, gpu_type: str) -> int:
    """Return a queue's guarantee, or its equal part of what its parent's leave."""
    stated = quota_of(policy, path, gpu_type).guarantee_milli
    if stated is not None:
        return stated
    parent = path.rpartition("/")[0]
    if parent:
        has = guarantee_of(ledger, policy, parent, gpu_type)
    else:
        has = sum(WHOLE_MILLI * len(node.has.gpus) for node in ledger.nodes.values() if node.has.gpu_type == gpu_type)
    paths = sorted({one for queue in policy.queues for one in above(queue.path)})
    siblings = [quota_of(policy, one, gpu_type).guarantee_milli for one in paths if one.rpartition("/")[0] == parent]
    given = sum(milli for milli in siblings if milli is not None)
    return int(max(has - given, 0) // max(siblings.count(None), 1))


def counted(ledger: Ledger, job_id: str, job: JobRecord) -> list[Share]:
    """Return the shares that count for a job."""
    if job_id in ledger.room:
        return list(ledger.room[job_id].shares)
    if job.live is None or job.preempted is not None:
        return []
    return [held.share for held in ledger.held.values() if (held.job_id, held.attempt) == (job_id, job.live.attempt)]


def by_type(ledger: Ledger, shares: Collection[Share]) -> Counter[str]:
    """Return thousandths of GPUs by type."""
    found: Counter[str] = Counter()
    for share in shares:
        if share.gpus:
            found[ledger.nodes[share.node_id].has.gpu_type] += milli_of(share)
    return found


def uses(ledger: Ledger, *, without: Collection[str] = (), still: Collection[str] = ()) -> Uses:
    """Return what queues use: without some jobs, and with others as if they had not been told to give way."""
    left_out = frozenset(
        one for one in without if one in ledger.jobs and (one in still or counted(ledger, one, ledger.jobs[one]))
    )
    key = ("uses", left_out, frozenset(still))
    if key not in ledger.memo:
        ledger.memo[key] = _uses(ledger, left_out, still)
    found: Uses = ledger.memo[key]
    return found


def _uses(ledger: Ledger, without: Collection[str], still: Collection[str]) -> Uses:
    total: Counter[tuple[str, str]] = Counter()
    fixed: Counter[tuple[str, str]] = Counter()
    for job_id, job in ledger.jobs.items():
        if job.ended is not None or job_id in without:
            continue
        shares = counted(ledger, job_id, job)
        if job_id in still and job.live is not None:
            shares = list(job.live.shares)
        for gpu_type, milli in by_type(ledger, shares).items():
            for path in above(job.spec.queue):
                total[path, gpu_type] += milli
                if not job.spec.preemptible:
                    fixed[path, gpu_type] += milli
    return Uses(total, fixed)


def level_between(one: str, other: str) -> tuple[str, str] | None:
    """Return the first queues in which two paths differ; None if one lies above the other."""
    for first, second in zip(above(one), above(other), strict=False):
        if first != second:
            return first, second
    return None
