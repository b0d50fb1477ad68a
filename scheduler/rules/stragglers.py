"""A rank that is slower than its peers for long has its node replaced: quarantined, and the gang started anew.

Slowness may come from the job's own data, too: of one job a rank's node is replaced once, and `straggler_replacements`
nodes in all. A job that may not be preempted is left alone.
"""

from gangline.events.decisions import NodeQuarantined
from gangline.events.policy import Policy
from gangline.scheduler.recovery import hold_for
from gangline.scheduler.room.orders import order
from gangline.scheduler.round import Round
from gangline.scheduler.rules.attempts import is_ending
from gangline.scheduler.rules.node_faults import may_quarantine
from gangline.scheduler.state import Job, SlowRank, State

RULE = "stragglers"


def decide(round_: Round) -> None:
    """Replace the node of every rank that was reported slow often enough."""
    policy = round_.policy
    if policy is None or RULE not in policy.rules or policy.straggler_reports <= 0:
        return
    for job_id in sorted(round_.state.touched):
        job = round_.state.jobs.get(job_id)
        slow = None if job is None else _straggler(round_.state, policy, job)
        if job is None or slow is None or not may_quarantine(round_.state, policy):
            continue
        quarantined = NodeQuarantined(
            node_id=slow.node_id,
            until_us=round_.state.now_us + policy.quarantine_us,
            reason=f"rank {slow.rank} of {job_id} took {slow.slowness_ppm // 10_000}% of its peers' time for a step",
        )
        if not round_.emit(quarantined, order(round_.state, policy, job_id, "straggler")):
            return
        # With the node quarantined, what the gang keeps and what replaces that node follow as after a failure.
        stopped = round_.state.jobs[job_id]
        held = None if stopped.attempt is None else hold_for(round_, stopped, stopped.attempt)
        if held is not None and not round_.emit(held):
            return


def _straggler(state: State, policy: Policy, job: Job) -> SlowRank | None:
    """Return the rank whose node is to be replaced: of several the slowest."""
    attempt = job.attempt
    if attempt is None or attempt.is_stopping or is_ending(job, attempt) or not job.spec.preemptible:
        return None
    if len(job.replaced_ranks) >= policy.straggler_replacements:
        return None
    slow = [
        one
        for one in attempt.slow
        if one.reports >= policy.straggler_reports
        and one.rank not in job.replaced_ranks
        and not state.nodes[one.node_id].quarantined
    ]
    return min(slow, key=lambda one: (-one.slowness_ppm, one.rank)) if slow else None
