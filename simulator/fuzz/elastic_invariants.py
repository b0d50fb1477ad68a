"""What elastic gangs are promised: a size of their range; others wait before they grow; they shrink before anyone goes.

Of shrinking it is asked on small clusters only, by trying every placement of a gang's least size on its own nodes.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from msgspec.structs import replace

from gangline.events.decisions import GangBound, PreemptionOrdered, RoomHeld
from gangline.events.policy import Policy
from gangline.events.types import Decision, JobSpec, Share
from gangline.simulator.fuzz.borrowers import may_start, open_nodes, runs_well, types_allowed
from gangline.simulator.fuzz.brute_force import Free, fits, free_nodes, is_small_world, placements
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.quota_invariants import quota_in_force
from gangline.simulator.fuzz.scene import Scene
from gangline.simulator.fuzz.tree import guarantee_of, level_between, uses

RULE = "elastic"
EVICTIONS = frozenset({"reclaim", "priority", "service", "recovery", "first_start"})
"""For a claimant; gangs are shrunk for it first."""


def sizes(spec: JobSpec) -> Sequence[int]:
    """Return the sizes that a gang may have."""
    if spec.elastic is None:
        return (spec.gpus,)
    return range(spec.elastic.min_gpus, spec.elastic.max_gpus + 1, spec.elastic.step_gpus)


def size_of(shares: Sequence[Share]) -> int:
    """Return how many GPUs a gang has of its own."""
    return sum(len(share.gpus) for share in shares if not share.role)


def an_elastic_gang_has_a_size_of_its_range(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Hold and bind a size that its spec allows; larger to grow, smaller to shrink, as asked with the rule off."""
    if not isinstance(decision, GangBound | RoomHeld) or ledger.jobs[decision.job_id].spec.elastic is None:
        return
    job, policy, size = ledger.jobs[decision.job_id], ledger.policy, size_of(decision.shares)
    if policy is None or (isinstance(decision, RoomHeld) and (decision.reason == "recovery" or job.live is None)):
        return  # what is left of a hold after a loss may be less than a gang starts with
    if isinstance(decision, RoomHeld) and not _is_resize(decision):
        before = ledger.room.get(decision.job_id)
        if before is None or not _devices(decision.shares) <= _devices(before.shares):
            yield f"{decision.job_id} keeps {decision.shares} of a hold, of which that was no part"
        return
    if size not in sizes(job.spec):
        yield f"{decision.job_id} gets {size} GPUs, and may have {list(sizes(job.spec))}"
    promised = decision.job_id in ledger.room
    if RULE not in policy.rules and not promised and not ledger.policy_changes and size != job.spec.gpus:
        yield f"{decision.job_id} gets {size} GPUs, and asks for {job.spec.gpus} while the rule is off"
    has = size_of(job.live.shares) if job.live is not None else size
    if isinstance(decision, RoomHeld) and job.live is not None:
        if decision.reason == "grow" and size <= has:
            yield f"{decision.job_id} grows from {has} to {size} GPUs"
        if decision.reason == "shrink" and size >= has:
            yield f"{decision.job_id} shrinks from {has} to {size} GPUs"


def _is_resize(held: RoomHeld) -> bool:
    """Whether a hold is what a gang is told to grow or shrink to: only what is left of one after a loss has an end."""
    return held.until_us is None


def _devices(shares: Sequence[Share]) -> set[tuple[str, int]]:
    return {(share.node_id, gpu) for share in shares for gpu in share.gpus}


def who_is_resized_has_run_for_a_while(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Let a gang grow or shrink only if it has run for its time, and was not told to give way too often."""
    policy = ledger.policy
    if policy is None or not isinstance(decision, PreemptionOrdered) or decision.reason not in {"grow", "shrink"}:
        return
    job = ledger.jobs[decision.job_id]
    run_us = ledger.now_us - job.bound_us
    least_us = min(policy.min_runtime_us, policy.gang_min_runtime_us)
    is_shielded = job.run_since_evicted_us(ledger.now_us) < least_us + job.preemptions * policy.shield_step_us
    often = job.preemptions >= max(policy.preemptions_max, policy.gang_preemptions_max)
    by_guarantee = decision.reason == "shrink" and "reclaim" in policy.rules
    if by_guarantee and run_us >= policy.reclaim_min_runtime_us:
        return
    if run_us < least_us or is_shielded or often:
        yield f"{decision.job_id} is to {decision.reason} after {run_us} us, and gave way {job.preemptions} times"


def nobody_within_guarantee_shrinks_for_others(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Shrink gangs of the claimant's own queue, and of queues above their guarantee."""
    quota = quota_in_force(ledger)
    if quota is None or not isinstance(decision, PreemptionOrdered) or decision.reason != "shrink":
        return
    gang, claimant = ledger.jobs[decision.job_id], decision.claimant or ""
    level = level_between(gang.spec.queue, ledger.jobs[claimant].spec.queue)
    if level is None or gang.live is None:
        return
    gpu_type = ledger.nodes[gang.live.shares[0].node_id].has.gpu_type
    # Those told before it, for the same claimant, hold now what they keep, and count with it at the least.
    use = uses(ledger, without=(claimant,), still=ledger.orders.get(claimant, ())).all[level[0], gpu_type]
    guarantee = guarantee_of(ledger, quota, level[0], gpu_type)
    if use <= guarantee:
        yield f"{decision.job_id} shrinks for {claimant}, and {level[0]} uses {use} of {guarantee}"


def elastic_gangs_shrink_before_anybody_goes(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Evict nobody for a claimant for whom it would be enough that one elastic gang shrinks."""
    policy = ledger.policy
    if policy is None or not isinstance(decision, RoomHeld) or decision.reason not in EVICTIONS:
        return
    spec, victims = ledger.jobs[decision.job_id].spec, ledger.orders.get(decision.job_id, ())
    asks = spec.gpus > 0 and not spec.roles and spec.elastic is None
    if RULE not in policy.rules or not victims or not asks or not is_small_world(ledger) or ledger.policy_changes:
        return
    gpu_type = ledger.nodes[decision.shares[0].node_id].has.gpu_type
    for job_id in ledger.jobs:
        if _may_shrink(ledger, policy, job_id, decision.job_id, gpu_type, victims) and _would_do(
            ledger, job_id, decision.job_id, gpu_type
        ):
            yield f"{victims} give way ({decision.reason}) to {decision.job_id}, though {job_id} could shrink"


def _may_shrink(  # noqa: PLR0917 - two jobs, and what they are judged by
    ledger: Ledger, policy: Policy, job_id: str, claimant: str, gpu_type: str, victims: Sequence[str]
) -> bool:
    """Whether a gang is certainly one that may be shrunk for a claimant."""
    job = ledger.jobs[job_id]
    if job.spec.elastic is None or job.live is None or job.spec.roles or job_id == claimant:
        return False
    told = job_id in victims
    often = job.preemptions - told
    least_us = max(policy.min_runtime_us, policy.gang_min_runtime_us)
    if ledger.now_us - job.bound_us < least_us or often >= min(policy.preemptions_max, policy.gang_preemptions_max):
        return False
    if job.run_since_evicted_us(ledger.now_us) < least_us + policy.shield_step_us * often:
        return False
    if size_of(job.live.shares) <= sizes(job.spec)[0] or not runs_well(ledger, job_id, job, gpu_type, told=told):
        return False
    level = level_between(job.spec.queue, ledger.jobs[claimant].spec.queue)
    if level is None:
        return job.spec.queue == ledger.jobs[claimant].spec.queue
    if "quota" not in policy.rules:
        return True
    use = uses(ledger, without=(claimant,), still=victims).all[level[0], gpu_type]
    return use > guarantee_of(ledger, policy, level[0], gpu_type)


def _would_do(ledger: Ledger, gang: str, claimant: str, gpu_type: str) -> bool:
    """Whether the claimant fits beside the gang's least size wherever on its nodes that is."""
    job = ledger.jobs[gang]
    live = job.live.shares if job.live is not None else ()
    least = replace(job.spec, gpus=sizes(job.spec)[0], elastic=None, nodes=None)
    theirs = [node for node in free_nodes(ledger, gone={gang}) if node.node_id in {share.node_id for share in live}]
    open_to = open_nodes(ledger, claimant, gone={gang}, still={gang})
    tried = False
    for counts in product(*(range(node.whole() + 1) for node in theirs)):
        if sum(counts) != least.gpus:
            continue
        tried = True
        taken = {node.node_id: count for node, count in zip(theirs, counts, strict=True)}
        nodes = [_without(node, least, taken.get(node.node_id, 0)) for node in open_to if node.gpu_type == gpu_type]
        if not fits(ledger, ledger.jobs[claimant].spec, nodes):
            return False
    return tried and any(placements(ledger, least, theirs))


def _without(node: Free, spec: JobSpec, ranks: int) -> Free:
    """Return what is left of a node beside so many ranks with a whole device each."""
    whole = [gpu for gpu, milli in node.milli.items() if milli >= spec.gpu_milli][:ranks]
    milli = {gpu: 0 if gpu in whole else free for gpu, free in node.milli.items()}
    return node._replace(
        milli=milli,
        cpu_milli=node.cpu_milli - spec.cpu_milli * ranks,
        memory_bytes=node.memory_bytes - spec.memory_bytes * ranks,
    )


def nobody_waits_for_what_a_gang_grows_into(scene: Scene) -> Iterator[str]:
    """Let gangs grow on GPUs of a type only while nobody waits for it whom quota would let have it."""
    ledger, policy = scene.ledger, scene.ledger.policy
    grown = [one for one in scene.decisions if isinstance(one, RoomHeld) and one.reason == "grow" and _is_resize(one)]
    if policy is None or scene.more or not grown:
        return
    for held in grown:
        gpu_type = ledger.nodes[held.shares[0].node_id].has.gpu_type
        for job_id in scene.state.pending:
            spec = ledger.jobs[job_id].spec
            if not spec.gpus or spec.roles or job_id == held.job_id or not may_start(scene, job_id):
                continue
            if spec.gpu_types and gpu_type not in spec.gpu_types:
                continue
            if gpu_type in types_allowed(ledger, policy, job_id):
                yield f"{held.job_id} grows on {gpu_type}, and {job_id} waits for that"


AT_RESIZE = (
    an_elastic_gang_has_a_size_of_its_range,
    who_is_resized_has_run_for_a_while,
    nobody_within_guarantee_shrinks_for_others,
    elastic_gangs_shrink_before_anybody_goes,
)
