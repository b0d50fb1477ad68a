"""Making room while jobs wait: at its interval, for a bounded number of claimants, the first in turn and some others.

For each claimant moves are tried first, then evictions by every rule that policy has on. Nothing is emitted unless the
claimant then fits, and what becomes free is held for it.
"""

from collections.abc import Callable, Sequence

from gangline.events.policy import Policy
from gangline.events.types import Decision
from gangline.scheduler.recovery import incomplete
from gangline.scheduler.roles import place_whole
from gangline.scheduler.room import (
    batch,
    consolidation,
    fill,
    first_start,
    priority,
    reclaim,
    recovery,
    service,
    shrinking,
)
from gangline.scheduler.room.claimants import Claiming, claims_at_ceiling, claims_of, without_ping_pong
from gangline.scheduler.room.claims import Bench, Claim, Victims
from gangline.scheduler.room.orders import evicting, moving
from gangline.scheduler.room.plan import plan_of, plan_of_gang
from gangline.scheduler.room.searches import Searches, shared_out
from gangline.scheduler.round import Round
from gangline.scheduler.state import Job
from gangline.scheduler.timers import is_due
from gangline.scheduler.views.pending import GroupKey, key_of, may_start
from gangline.scheduler.views.running import Runs

EVICTIONS: tuple[tuple[str, Callable[[Claim, Bench], Victims | None]], ...] = (
    ("reclaim", reclaim.victims),
    ("priority", priority.victims),
    ("service", service.victims),
    ("recovery", recovery.victims),
    ("first_start", first_start.victims),
)
"""The rules by which jobs give way to one claimant, by their names in the policy; the first that holds is named."""


def decide(round_: Round) -> None:
    """Make room for claimants, if it is time to."""
    policy, state = round_.policy, round_.state
    if policy is None or not state.pending or not (is_due(state, policy.room_interval_us) or state.more):
        return
    _for_incomplete(round_, policy)
    still_open = _for_each(round_, policy)
    _for_reserving(round_, policy)
    if still_open and is_due(state, policy.reclaim_interval_us) and not round_.full:
        _reclaim_a_gang(round_, policy, still_open)
    for name, rule in (("fill", fill.decide), ("batch", batch.decide)):
        if name in policy.rules and not round_.full:
            rule(round_, policy)


def _for_incomplete(round_: Round, policy: Policy) -> None:
    """Make room for the recovering gangs for which less is held than they need, counting in what is."""
    for job in shared_out(round_.state, policy, incomplete(round_.state, policy)):
        state, views = round_.state, round_.views
        with views.lent(state, job.job_id):
            group = key_of(policy, job, views.nodes.fleet)
            claims = claims_of(round_, policy, group, job, views.running.runs(state, policy))
            _, decisions = _room_for(round_, policy, job, claims)
        if decisions and not round_.emit(*decisions):
            return


def _for_reserving(round_: Round, policy: Policy) -> None:
    """Make room for those for which nodes are reserved, though others of their group were submitted before them."""
    reserved = round_.state.reserved
    for job_id in sorted(reserved, key=lambda job_id: (reserved[job_id].since_us, job_id)):
        decisions = room_for(round_, policy, round_.state.jobs[job_id])
        if decisions and not round_.emit(*decisions):
            return


def _for_each(round_: Round, policy: Policy) -> list[GroupKey]:
    """Make room for the first job of each group in turn; return the groups whose small jobs could reclaim in vain."""
    searches, still_open = Searches(round_, policy), []
    runs: Runs | None = None
    while (group := searches.next_group()) is not None:
        views = round_.views
        runs = views.running.runs(round_.state, policy) if runs is None else runs
        job = round_.state.jobs[views.pending.groups[group][0][-1]]
        claims = claims_of(round_, policy, group, job, runs)
        at_ceiling = claims_at_ceiling(round_, policy, group, job, runs)
        searched, decisions = _room_for(round_, policy, job, (*claims, *at_ceiling))
        if decisions:
            if not round_.emit(*decisions):
                break
            runs = None
        elif any(_could_reclaim(claiming) for claiming in claims):
            still_open.append(group)
        searches.over(group, searched=searched, found=bool(decisions))
    return still_open


def _room_for(round_: Round, policy: Policy, job: Job, claims: Sequence[Claiming]) -> tuple[bool, tuple[Decision, ...]]:
    """Return whether there was anybody to search among, and the decisions that make room for a job, if any can."""
    state, views = round_.state, round_.views
    if _fits(round_, claims):
        return False, ()
    searched = False
    for claim, nodes, bench in claims:
        if "elastic" in policy.rules:
            shrinks = shrinking.shrinks_for(state, views, claim, bench, nodes)
            if shrinks is not None:
                return True, moving(state, policy, job.job_id, shrinks, "shrink")
        if "consolidation" in policy.rules and not claim.short_milli:
            moves = consolidation.moves_for(state, views, claim, bench, nodes)
            if moves is not None:
                return True, moving(state, policy, job.job_id, moves)
        rules = [rule(claim, bench) for name, rule in EVICTIONS if name in policy.rules]
        if claim.short_milli and "reclaim" in policy.rules and is_due(state, policy.reclaim_interval_us):
            rules.append(_as_last_resort(reclaim.gangs(claim, bench)))
        willing = without_ping_pong(round_, job, [victims for victims in rules if victims is not None])
        under = claim.under_ceiling(bench.runs)
        if not any((victims.eligible & under).any() for victims in willing):
            continue
        searched = True
        plan = plan_of(round_, claim, bench.runs, willing, nodes)
        if plan is not None:
            return True, evicting(state, policy, job.job_id, plan)
    return searched, ()


def _fits(round_: Round, claims: Sequence[Claiming]) -> bool:
    """Whether a claimant fits as it is and waits for the next round: those who kept it from there have just started."""
    fit = round_.views.nodes.fit
    return any(place_whole(fit, claim.shape, nodes) is not None for claim, nodes, _ in claims if not claim.short_milli)


def _as_last_resort(victims: Victims | None) -> Victims | None:
    """Return the same, of whom none goes if others will do."""
    return None if victims is None else victims._replace(last_resort=victims.eligible)


def _could_reclaim(claiming: Claiming) -> bool:
    victims = reclaim.gangs(claiming.claim, claiming.bench)
    return victims is not None and "reclaim" in claiming.bench.policy.rules and bool(victims.eligible.any())


def _reclaim_a_gang(round_: Round, policy: Policy, groups: Sequence[GroupKey]) -> None:
    """Let the smallest borrowing gang go for the first small claim that stays open, at its own interval."""
    for group in groups:
        views = round_.views
        line = views.pending.groups.get(group)
        if line is None:
            continue
        job = round_.state.jobs[line[0][-1]]
        runs = views.running.runs(round_.state, policy)
        claims = claims_of(round_, policy, group, job, runs)
        for claim, nodes, bench in () if _fits(round_, claims) else claims:
            victims = reclaim.gangs(claim, bench)
            if victims is None:
                continue
            (victims,) = without_ping_pong(round_, job, [victims])
            plan = plan_of_gang(round_, claim, runs, victims, nodes)
            if plan is not None:
                round_.emit(*evicting(round_.state, policy, job.job_id, plan))
                return


def room_for(round_: Round, policy: Policy, job: Job) -> tuple[Decision, ...]:
    """Return how room would be made for a job if it were its turn now; nothing if that cannot be."""
    views = round_.views
    if not may_start(round_.state, job):
        return ()
    group = views.pending.group_of(job.job_id)
    runs = views.running.runs(round_.state, policy)
    claims = (
        *claims_of(round_, policy, group, job, runs),
        *claims_at_ceiling(round_, policy, group, job, runs),
    )
    return _room_for(round_, policy, job, claims)[1]
