"""Brute force on small clusters: what waits does not fit, and who gives way has to, is enough, and loses least.

It knows the specification and the log, and nothing of how the core searches.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import combinations

from gangline.events.decisions import RoomHeld
from gangline.events.types import Decision
from gangline.simulator.fuzz.borrowers import (
    borrowers,
    cost_of,
    is_scattered,
    lower_ones,
    may_start,
    on_one_node,
    open_nodes,
)
from gangline.simulator.fuzz.brute_force import Free, fits, free_nodes, is_small, is_small_world
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.quota_invariants import NO_EVICTIONS
from gangline.simulator.fuzz.records import CouldStart
from gangline.simulator.fuzz.scene import Scene

SHARED_OUT = frozenset({"move", "shrink"})
"""Reasons to give way for which the next attempt has something held for it, of what is left to a claimant."""

PATIENCE = 2
"""Times that every claimant may be searched for without one within guarantee getting any."""


def what_is_held_will_be_free(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Hold only what nobody has but those who were told to give way for it, and the claimant itself.

    Who moves or shrinks for a claimant may get what others leave who do so for the same one.
    """
    if not isinstance(decision, RoomHeld):
        return
    gone = _leaving_to(ledger, decision.job_id, decision.reason)
    free = {node.node_id: node for node in free_nodes(ledger, gone=gone, held_for=decision.job_id)}
    for share in decision.shares:
        node = free.get(share.node_id)
        if node is None:
            yield f"on {share.node_id}, where nothing may start, room is held for {decision.job_id}"
            continue
        for gpu in share.gpus:
            has = node.milli.get(gpu, 0) + _counted_twice(ledger, decision.job_id, share.node_id, gpu)
            if has < share.gpu_milli:
                yield f"GPU {gpu} of {share.node_id} is held for {decision.job_id}, and has {has} free"


def _counted_twice(ledger: Ledger, claimant: str, node_id: str, gpu: int) -> int:
    """Return how much of a device is held for others and had by those who leave it to them."""
    found = 0
    for job_id, room in ledger.room.items():
        if job_id == claimant:
            continue
        held = sum(share.gpu_milli for share in room.shares if share.node_id == node_id and gpu in share.gpus)
        leaving = sum(
            one.share.gpu_milli
            for one in ledger.on_node(node_id)
            if gpu in one.share.gpus and one.job_id in _leaving_to(ledger, job_id, room.reason)
        )
        found += min(held, leaving)
    return found


def _leaving_to(ledger: Ledger, job_id: str, reason: str) -> set[str]:
    """Return who leaves what he has to a job for which room is held for a reason, whenever he was told to."""
    orders = {one: job.preempted for one, job in ledger.jobs.items() if job.preempted is not None}
    leaving = {job_id, *(one for one, order in orders.items() if order.claimant == job_id)}
    own = orders.get(job_id)
    claims = job_id in ledger.orders
    if own is not None and own.claimant is not None and own.reason == reason in SHARED_OUT and not claims:
        leaving |= {one for one, order in orders.items() if (order.claimant, order.reason) == (own.claimant, reason)}
    return leaving


def nobody_gives_way_in_vain(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Evict nobody without whom the claimant would fit all the same."""
    if not isinstance(decision, RoomHeld) or decision.reason in NO_EVICTIONS or not is_small_world(ledger):
        return
    if ledger.policy is None or ledger.policy.head_blocks or ledger.policy_changes:
        return  # what fits waits for the first in line; the quota that binds is still the one before
    job, victims = ledger.jobs[decision.job_id], ledger.orders.get(decision.job_id, ())
    if job.spec.roles:
        return
    for spared in victims:
        gone = {one for one in victims if one != spared}
        nodes = open_nodes(ledger, decision.job_id, gone=gone, still=(spared,))
        if fits(ledger, job.spec, nodes):
            yield f"{spared} gives way ({decision.reason}) to {decision.job_id}, which would fit without that"


def who_gives_way_loses_least(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Evict from one node those who have done the least work since their last checkpoint, of all who might go.

    Other choices are looked at on nodes that have the claimant's CPU and memory anyway: there only GPUs decide.
    """
    policy = ledger.policy
    if policy is None or not isinstance(decision, RoomHeld) or decision.reason in NO_EVICTIONS:
        return
    spec, victims = ledger.jobs[decision.job_id].spec, ledger.orders.get(decision.job_id, ())
    plain = is_small(ledger, spec) and spec.gpus and not spec.roles
    if not plain or not victims or not is_small_world(ledger) or decision.reason in {"fill", "batch"}:
        return
    if not all(on_one_node(ledger, victim) for victim in victims):
        return
    cost = sum(cost_of(ledger, victim) for victim in victims)
    gpu_type = ledger.nodes[decision.shares[0].node_id].has.gpu_type
    willing = borrowers(ledger, policy, decision.job_id, gpu_type, also=victims, willing=True)
    willing += lower_ones(ledger, policy, decision.job_id, gpu_type, also=victims)
    for node in open_nodes(ledger, decision.job_id):
        if node.gpu_type != gpu_type or not node.feeds(spec, spec.gpus):
            continue
        there = [one for one in willing if on_one_node(ledger, one) == node.node_id and not is_scattered(ledger, one)]
        for count in range(1, len(there) + 1):
            for chosen in combinations(there, count):
                other = sum(cost_of(ledger, one) for one in chosen)
                if other < cost and _would_fit(ledger, decision.job_id, node, chosen, instead_of=victims):
                    yield f"{victims} give way to {decision.job_id} at {cost}, and {chosen} would at {other}"
                    return


def _would_fit(
    ledger: Ledger, job_id: str, node: Free, chosen: tuple[str, ...], *, instead_of: Collection[str]
) -> bool:
    still = [one for one in instead_of if one not in chosen]
    after = [one for one in open_nodes(ledger, job_id, gone=chosen, still=still) if one.node_id == node.node_id]
    return fits(ledger, ledger.jobs[job_id].spec, after)


def what_fits_starts(scene: Scene) -> Iterator[str]:
    """Let no job wait that fitted after the round before, and fits still on nodes that were open to it then.

    One that this round opened, as the gang that reserved it got it, is tried at the next.
    """
    ledger, policy = scene.ledger, scene.ledger.policy
    if policy is None or policy.head_blocks or scene.more or not is_small_world(ledger):
        ledger.watch.could_start = {}
        return
    could_start = {}
    for job_id in scene.state.pending:
        job = ledger.jobs[job_id]
        if not may_start(scene, job_id) or job.spec.roles:
            continue
        nodes = open_nodes(ledger, job_id)
        if fits(ledger, job.spec, nodes):
            could_start[job_id] = CouldStart(job.attempts, frozenset(node.node_id for node in nodes))
            before = ledger.watch.could_start.get(job_id)
            if before is None or before.attempts != job.attempts:
                continue
            if fits(ledger, job.spec, [node for node in nodes if node.node_id in before.node_ids]):
                yield f"{job_id} fits on {[(node.node_id, dict(node.milli)) for node in nodes]}, and waits"
    ledger.watch.could_start = could_start


def guarantees_are_reachable(scene: Scene) -> Iterator[str]:
    """Give a claimant within guarantee what others have borrowed, soon after they may be told to give way."""
    ledger, policy = scene.ledger, scene.ledger.policy
    if policy is None or not {"quota", "reclaim"} <= set(policy.rules) or policy.head_blocks or scene.more:
        return
    if not is_small_world(ledger):
        ledger.watch.claims = {}
        return
    if ledger.now_us // policy.room_interval_us == ledger.before_us // policy.room_interval_us:
        return
    # Half of the searches are for the first in turn, the rest goes round: everybody has his in so many intervals.
    around = -(-len(scene.state.pending) // (policy.room_searches - policy.room_searches // 2))
    patience = PATIENCE * (1 if policy.room_searches >= len(scene.state.pending) else around)
    waits = {}
    for job_id in scene.state.pending:
        job = ledger.jobs[job_id]
        if not may_start(scene, job_id) or job.spec.roles or job.preempted is not None:
            continue
        if job.has_waited_us(ledger.now_us) < policy.reclaim_after_us:
            continue
        if _could_reclaim(ledger, job_id):
            waits[job_id] = ledger.watch.claims.get(job_id, 0) + 1
            if waits[job_id] > patience:
                yield f"{job_id} is within its guarantee, and waits for what others borrow at {waits[job_id]} intervals"
    ledger.watch.claims = waits


def _could_reclaim(ledger: Ledger, job_id: str) -> bool:
    policy, spec = ledger.policy, ledger.jobs[job_id].spec
    if policy is None or fits(ledger, spec, open_nodes(ledger, job_id)):
        return False
    for gpu_type in sorted({node.has.gpu_type for node in ledger.nodes.values()}):
        if spec.gpu_types and gpu_type not in spec.gpu_types:
            continue
        gone = borrowers(ledger, policy, job_id, gpu_type)
        nodes = [node for node in open_nodes(ledger, job_id, gone=gone) if node.gpu_type == gpu_type]
        if gone and fits(ledger, spec, nodes):
            return True
    return False


AT_PLACEMENT: tuple[Callable[[Ledger, Decision], Iterator[str]], ...] = (
    what_is_held_will_be_free,
    nobody_gives_way_in_vain,
    who_gives_way_loses_least,
)
BETWEEN_ROUNDS: tuple[Callable[[Scene], Iterator[str]], ...] = (what_fits_starts, guarantees_are_reachable)
