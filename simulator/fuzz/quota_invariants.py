"""What quota promises: ceilings, guarantees, and that only those who borrow give way to those who are guaranteed.

Each decision is judged by bindings, holds and facts alone, as the ledger counts them just before it.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gangline.events.decisions import GangBound, PreemptionOrdered, RoomHeld
from gangline.events.policy import Policy
from gangline.events.types import Decision, JobSpec
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.tree import above, by_type, guarantee_of, level_between, quota_of, uses

NO_EVICTIONS = frozenset({"move", "grow", "shrink", "drain", "straggler", "held", "retried"})
"""Orders to give way that take nothing from one for another."""


def quota_in_force(ledger: Ledger) -> Policy | None:
    """Return the policy if its quota binds; None while it changes, for a tree is in force from the next tick on."""
    policy = ledger.policy
    return policy if policy is not None and "quota" in policy.rules and not ledger.policy_changes else None


def given_anew(ledger: Ledger, decision: Decision) -> GangBound | RoomHeld | None:
    """Return a decision that gives a job GPUs that it was not promised before."""
    if isinstance(decision, RoomHeld):
        return decision
    if isinstance(decision, GangBound):
        room = ledger.room.get(decision.job_id)
        whole = room is not None and sum(len(share.ranks) for share in room.shares) == decision.world_size
        return None if whole else decision
    return None


def no_ceiling_is_exceeded(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Give no queue more than its ceiling, what is held counted, what stops for others not."""
    policy, given = quota_in_force(ledger), given_anew(ledger, decision)
    if policy is None or given is None or _is_kept(ledger, given):
        return
    queue = ledger.jobs[given.job_id].spec.queue
    use = uses(ledger, without=(given.job_id,)).all
    for gpu_type, milli in by_type(ledger, given.shares).items():
        for path in above(queue):
            ceiling = quota_of(policy, path, gpu_type).ceiling_milli
            if ceiling is not None and use[path, gpu_type] + milli > ceiling:
                yield (
                    f"{given.job_id} gets {milli} thousandths of {gpu_type} for {queue}, where {path} uses "
                    f"{use[path, gpu_type]}, and its ceiling is {ceiling}"
                )


def who_is_not_preemptible_does_not_borrow(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Keep what cannot be taken back within the guarantee of each queue above it."""
    policy, given = quota_in_force(ledger), given_anew(ledger, decision)
    if policy is None or given is None or _is_kept(ledger, given) or ledger.jobs[given.job_id].spec.preemptible:
        return
    queue = ledger.jobs[given.job_id].spec.queue
    fixed = uses(ledger, without=(given.job_id,)).fixed
    for gpu_type, milli in by_type(ledger, given.shares).items():
        for path in above(queue):
            guarantee = guarantee_of(ledger, policy, path, gpu_type)
            if fixed[path, gpu_type] + milli > guarantee:
                yield (
                    f"{given.job_id} gets {milli} thousandths of {gpu_type} for good, where {path} is guaranteed "
                    f"{guarantee} and has given {fixed[path, gpu_type]}"
                )


def _is_kept(ledger: Ledger, given: GangBound | RoomHeld) -> bool:
    """Whether a job only keeps, for its next attempt, what it has: a promise from before stands."""
    job = ledger.jobs[given.job_id]
    if not isinstance(given, RoomHeld) or given.reason not in {"recovery", "move", "shrink"}:
        return False
    if given.job_id in ledger.orders:
        return False  # others give way to it
    before = job.live.shares if job.live is not None else job.last_shares
    before = ledger.room[given.job_id].shares if given.job_id in ledger.room else before
    had, has = by_type(ledger, before), by_type(ledger, given.shares)
    return all(milli <= had[gpu_type] for gpu_type, milli in has.items())


def milli_asked(spec: JobSpec) -> int:
    """Return the thousandths of GPUs that a job asks for, those of roles included."""
    return spec.gpus * spec.gpu_milli + sum(role.ranks * role.gpu_milli for role in spec.roles)


def least_asked(policy: Policy, spec: JobSpec) -> int:
    """Return what a job waits as: an elastic gang as one of its least size."""
    if spec.elastic is not None and "elastic" in policy.rules:
        spec = replace(spec, gpus=spec.elastic.min_gpus)
    return milli_asked(spec)


def only_borrowers_give_way(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Reclaim from queues above their guarantee; outside one's own guarantee take nothing from who is within."""
    policy = ledger.policy
    if policy is None or not isinstance(decision, PreemptionOrdered) or decision.reason in NO_EVICTIONS:
        return
    victim, claimant = ledger.jobs[decision.job_id], ledger.jobs[decision.claimant or ""]
    theirs, ours = victim.spec.queue, claimant.spec.queue
    if theirs == ours:
        if decision.reason == "reclaim":
            yield f"{decision.job_id} is reclaimed for {decision.claimant} of its own queue {ours}"
        return
    if decision.reason == "priority":
        yield f"{decision.job_id} of {theirs} gives way to the priority of {decision.claimant}, which is of {ours}"
        return
    quota, level = quota_in_force(ledger), level_between(theirs, ours)
    if quota is None or level is None or victim.live is None:
        return
    # As before the eviction: those told to go with it, for the same claimant, count as if they had not been.
    before = uses(ledger, without=(decision.claimant or "",), still=ledger.orders.get(decision.claimant or "", ())).all
    gpu_type = ledger.nodes[victim.live.shares[0].node_id].has.gpu_type
    their_guarantee = guarantee_of(ledger, quota, level[0], gpu_type)
    our_guarantee = guarantee_of(ledger, quota, level[1], gpu_type)
    asked = least_asked(policy, claimant.spec)
    borrows = before[level[0], gpu_type] > their_guarantee
    claims = before[level[1], gpu_type] + asked <= our_guarantee
    numbers = (
        f"{level[0]} uses {before[level[0], gpu_type]} of {their_guarantee}, and {level[1]} "
        f"{before[level[1], gpu_type]} of {our_guarantee}, and asks for {asked}"
    )
    if decision.reason == "reclaim" and not (borrows and claims):
        yield f"{decision.job_id} is reclaimed for {decision.claimant}, but {numbers}"
    if not borrows and not claims:
        yield f"{decision.job_id} gives way ({decision.reason}) to {decision.claimant}, but {numbers}"


def nobody_is_evicted_back(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Let nobody evict, for the same reason, whom it gave way to."""
    if not isinstance(decision, PreemptionOrdered) or decision.reason in NO_EVICTIONS:
        return
    if (decision.claimant, decision.job_id, decision.reason) in ledger.evictions:
        yield f"{decision.job_id} gives way to {decision.claimant} ({decision.reason}), and it was the other way round"


def victims_have_run_for_a_while(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Let nobody give way who has run for less than policy says, nor oftener than it says, reclaim apart."""
    policy = ledger.policy
    if policy is None or not isinstance(decision, PreemptionOrdered) or decision.reason in NO_EVICTIONS:
        return
    job = ledger.jobs[decision.job_id]
    run_us = ledger.now_us - job.bound_us
    if decision.reason == "reclaim":
        if run_us < policy.reclaim_min_runtime_us:
            yield f"{decision.job_id} is reclaimed after {run_us} us"
        return
    least_us = min(policy.min_runtime_us, policy.gang_min_runtime_us)
    if run_us < least_us:
        yield f"{decision.job_id} gives way ({decision.reason}) after {run_us} us, and before {least_us}"
    since_us, shield_us = job.run_since_evicted_us(ledger.now_us), least_us + job.preemptions * policy.shield_step_us
    starves = decision.reason == "service" and _starves(ledger, policy, decision.claimant or "")
    if since_us < shield_us and not starves:
        yield f"{decision.job_id} gives way ({decision.reason}) after {since_us} us, and is shielded for {shield_us}"
    if decision.reason == "first_start" and since_us < policy.first_start_min_runtime_us:
        yield f"{decision.job_id} gives way for a first start after {since_us} us"
    if job.preemptions >= max(policy.preemptions_max, policy.gang_preemptions_max):
        yield f"{decision.job_id} gives way ({decision.reason}), and did so {job.preemptions} times before"


def _starves(ledger: Ledger, policy: Policy, job_id: str) -> bool:
    """Whether a gang has waited so long, for reserved nodes too, that nobody's grown shield keeps it waiting."""
    job = ledger.jobs[job_id]
    waited_us = ledger.now_us - job.waits_since_us
    waits_long = job_id in ledger.reserved or waited_us >= policy.reservation_hard_us
    several = job.spec.gpus > 1 or bool(job.spec.roles)
    return "reservation" in policy.rules and several and waits_long and waited_us >= policy.reservation_after_us


AT_QUOTA = (
    no_ceiling_is_exceeded,
    who_is_not_preemptible_does_not_borrow,
    only_borrowers_give_way,
    nobody_is_evicted_back,
    victims_have_run_for_a_while,
)
