"""Plans as decisions: the orders to give way, and what is held; each plan is one group, whole or absent."""

from gangline.events.decisions import PreemptionOrdered, RoomHeld
from gangline.events.policy import Policy
from gangline.events.types import Decision, PreemptionReason, Share
from gangline.scheduler.room.consolidation import Moves
from gangline.scheduler.room.plan import Plan
from gangline.scheduler.state import State


def order(
    state: State, policy: Policy, job_id: str, reason: PreemptionReason, *, claimant: str | None = None
) -> PreemptionOrdered:
    """Return the order to a running job to give way, in its own grace or in that of the policy."""
    job = state.jobs[job_id]
    grace_us = policy.preemption_grace_us if job.spec.grace_us is None else job.spec.grace_us
    return PreemptionOrdered(job_id=job_id, attempt=job.attempts, reason=reason, claimant=claimant, grace_us=grace_us)


def evicting(state: State, policy: Policy, claimant: str, plan: Plan) -> tuple[Decision, ...]:
    """Return the orders to the victims of a plan, and what is held for the claimant."""
    orders = [order(state, policy, victim.job_id, victim.reason, claimant=claimant) for victim in plan.victims]
    return (*orders, _held(claimant, plan.shares, plan.victims[0].reason))


def moving(
    state: State, policy: Policy, claimant: str, moves: Moves, reason: PreemptionReason = "move"
) -> tuple[Decision, ...]:
    """Return what moves jobs into what is held for them, and holds for the claimant what that opens.

    All are told first: what one of them keeps may be what another one has.
    """
    orders = [order(state, policy, move.job_id, reason, claimant=claimant) for move in moves.moves]
    holds = [_held(move.job_id, move.shares, reason) for move in moves.moves]
    return (*orders, *holds, _held(claimant, moves.shares, reason))


def _held(job_id: str, shares: tuple[Share, ...], reason: PreemptionReason) -> RoomHeld:
    return RoomHeld(job_id=job_id, shares=shares, reason=reason, until_us=None)
