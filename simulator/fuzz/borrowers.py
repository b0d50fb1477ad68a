"""Who may give way to a claimant within its guarantee, and where a job may be placed, read from the specification."""

from collections.abc import Collection

from gangline.events.policy import Policy
from gangline.events.types import SECOND_US, WHOLE_MILLI
from gangline.simulator.fuzz.brute_force import Free, free_nodes, is_small
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.quota_invariants import least_asked, milli_asked
from gangline.simulator.fuzz.records import JobRecord, milli_of
from gangline.simulator.fuzz.scene import Scene
from gangline.simulator.fuzz.tree import Uses, above, guarantee_of, level_between, quota_of, types_of, uses

COUNT_BITS = 5
"""Below the lost work a cost counts jobs, so that of equals the fewest go."""


def may_start(scene: Scene, job_id: str) -> bool:
    """Whether a job waits for nothing but room and its turn."""
    job = scene.ledger.jobs[job_id]
    return not job.held and job_id not in scene.ledger.room and not scene.state.jobs[job_id].barriers


def open_nodes(ledger: Ledger, job_id: str, *, gone: Collection[str] = (), still: Collection[str] = ()) -> list[Free]:
    """Return nodes on which a job may be placed for certain, without those that are gone.

    Quota is counted as if those of `still` had not been told to give way.
    Those kept or reserved for others are left out, and those that could not launch it.
    """
    policy = ledger.policy
    if policy is None:
        return []
    reserved = {node_id for other, one in ledger.reserved.items() if other != job_id for node_id in one.node_ids}
    spares = "spares" in policy.rules and (policy.spare_nodes > 0 or policy.spare_ppm > 0)
    types = types_allowed(ledger, policy, job_id, gone=gone, still=still)
    found = []
    for node in free_nodes(ledger, gone=gone, held_for=job_id):
        ports = [held.port for held in ledger.on_node(node.node_id) if held.port is not None]
        is_spare = spares and all(milli == WHOLE_MILLI for milli in node.milli.values())
        failed = job_id in ledger.nodes[node.node_id].could_not_launch
        if node.node_id in reserved or failed or is_spare or len(ports) >= policy.port_count:
            continue
        if node.gpu_type in types:
            found.append(node)
    return found


def types_allowed(
    ledger: Ledger, policy: Policy, job_id: str, *, gone: Collection[str] = (), still: Collection[str] = ()
) -> list[str]:
    """Return the types of which quota lets a job have what it asks for."""
    job = ledger.jobs[job_id]
    milli = milli_asked(job.spec)
    if "quota" not in policy.rules or not milli:
        return types_of(ledger)
    use = uses(ledger, without=(job_id, *(one for one in gone if one not in still)), still=still)
    found = []
    for gpu_type in types_of(ledger):
        for path in above(job.spec.queue):
            ceiling = quota_of(policy, path, gpu_type).ceiling_milli
            if ceiling is not None and use.all[path, gpu_type] + milli > ceiling:
                break
            guarantee = guarantee_of(ledger, policy, path, gpu_type)
            if not job.spec.preemptible and use.fixed[path, gpu_type] + milli > guarantee:
                break
        else:
            if not _is_kept(ledger, policy, job_id, gpu_type, use):
                found.append(gpu_type)
    return found


def _is_kept(ledger: Ledger, policy: Policy, job_id: str, gpu_type: str, use: Uses) -> bool:
    """Whether what a job would take of its queues' limits is kept for a gang that has waited too long."""
    job = ledger.jobs[job_id]
    for other_id in ledger.reserved:
        other = ledger.jobs[other_id]
        if other_id == job_id or not _waits_too_long(ledger, policy, other):
            continue
        is_earlier = (job.waits_since_us, job.submitted) < (other.waits_since_us, other.submitted)
        if job_id in ledger.reserved and is_earlier and _waits_too_long(ledger, policy, job):
            continue
        if other.spec.gpu_types and gpu_type not in other.spec.gpu_types:
            continue
        if _bars(ledger, policy, job, other, gpu_type, use) and not _is_first(ledger, policy, job, other, use):
            return True
    return False


def _waits_too_long(ledger: Ledger, policy: Policy, job: JobRecord) -> bool:
    return ledger.now_us - job.waits_since_us >= policy.reservation_hard_us


def _bars(  # noqa: PLR0917 - two jobs, and the limits above both
    ledger: Ledger, policy: Policy, job: JobRecord, other: JobRecord, gpu_type: str, use: Uses
) -> bool:
    """Whether a queue above both would have to let the other one have what it asks for, and could not after the job."""
    asked, both = least_asked(policy, other.spec), least_asked(policy, job.spec) + least_asked(policy, other.spec)
    for path in above(job.spec.queue):
        if path not in above(other.spec.queue):
            return False
        ceiling = quota_of(policy, path, gpu_type).ceiling_milli
        if ceiling is not None and asked <= ceiling < use.all[path, gpu_type] + both:
            return True
        guarantee = guarantee_of(ledger, policy, path, gpu_type)
        for_good = not (job.spec.preemptible or other.spec.preemptible)
        if for_good and asked <= guarantee < use.fixed[path, gpu_type] + both:
            return True
    return False


def _is_first(ledger: Ledger, policy: Policy, job: JobRecord, other: JobRecord, use: Uses) -> bool:
    """Whether a job is within the guarantee of its queue, and the other one is not, where the two paths differ."""
    level = level_between(job.spec.queue, other.spec.queue)
    if level is None:
        return False
    within = [
        any(
            use.all[path, gpu_type] + least_asked(policy, one.spec) <= guarantee_of(ledger, policy, path, gpu_type)
            for gpu_type in one.spec.gpu_types or types_of(ledger)
        )
        for path, one in zip(level, (job, other), strict=True)
    ]
    return within[0] and not within[1]


def borrowers(
    ledger: Ledger,
    policy: Policy,
    claimant: str,
    gpu_type: str,
    *,
    also: Collection[str] = (),
    willing: bool = False,
) -> list[str]:
    """Return who may be reclaimed for a claimant, as before the jobs `also` were told to give way.

    For a small claimant only small ones; if `willing`, only those who do not go as the last.
    """
    spec = ledger.jobs[claimant].spec
    if "reclaim" not in policy.rules or "quota" not in policy.rules or ledger.policy_changes:
        return []
    if ledger.jobs[claimant].has_waited_us(ledger.now_us) < policy.reclaim_after_us:
        return []
    use = uses(ledger, without=(claimant,), still=also)
    found = []
    for job_id, job in ledger.jobs.items():
        level = level_between(job.spec.queue, spec.queue)
        if level is None or not runs_well(ledger, job_id, job, gpu_type, told=job_id in also):
            continue
        if (claimant, job_id, "reclaim") in ledger.evictions:
            continue  # the claimant gave way to this one for the same reason
        claims = use.all[level[1], gpu_type] + milli_asked(spec) <= guarantee_of(ledger, policy, level[1], gpu_type)
        borrows = use.all[level[0], gpu_type] > guarantee_of(ledger, policy, level[0], gpu_type)
        small = is_small(ledger, job.spec) or not is_small(ledger, spec)
        long_enough = ledger.now_us - job.bound_us >= policy.reclaim_min_runtime_us
        if not (claims and borrows and small and long_enough):
            continue
        if not willing or _is_willing(ledger, policy, job, gpu_type, use, level[0]):
            found.append(job_id)
    return found


def lower_ones(
    ledger: Ledger, policy: Policy, claimant: str, gpu_type: str, *, also: Collection[str] = ()
) -> list[str]:
    """Return the small jobs of a claimant's own queue that may go for its priority, as before those of `also` did."""
    if "priority" not in policy.rules:
        return []
    ours = ledger.jobs[claimant]
    found = []
    for job_id, job in ledger.jobs.items():
        told = job_id in also
        often = job.preemptions - told
        shield_us = policy.min_runtime_us + policy.shield_step_us * often
        if (
            job.spec.queue == ours.spec.queue
            and job.priority < ours.priority
            and is_small(ledger, job.spec)
            and runs_well(ledger, job_id, job, gpu_type, told=told)
            and ledger.now_us - job.bound_us >= policy.min_runtime_us
            and job.run_since_evicted_us(ledger.now_us) >= shield_us
            and often < policy.preemptions_max
            and (claimant, job_id, "priority") not in ledger.evictions
        ):
            found.append(job_id)
    return found


def runs_well(ledger: Ledger, job_id: str, job: JobRecord, gpu_type: str, *, told: bool) -> bool:
    """Whether a preemptible attempt runs, all of it, on GPUs of a type, and was not told to stop before."""
    if job.live is None or job.stop is not None or job.exited or not job.spec.preemptible:
        return False
    if job.preempted is not None and not told:
        return False
    held = [one for one in ledger.held.values() if (one.job_id, one.attempt) == (job_id, job.live.attempt)]
    nodes = [ledger.nodes[one.share.node_id] for one in held]
    return len(held) == len(job.live.shares) and all(
        node.has.gpu_type == gpu_type and not node.lost and not node.broken for node in nodes
    )


def _is_willing(ledger: Ledger, policy: Policy, job: JobRecord, gpu_type: str, use: Uses, level: str) -> bool:  # noqa: PLR0917
    """Whether a borrower has run long and was seldom evicted, and each queue from there down to its own borrows."""
    told = job.preempted is not None
    often = job.preemptions - told
    shield_us = policy.reclaim_min_runtime_us + policy.shield_step_us * often
    if job.run_since_evicted_us(ledger.now_us) < shield_us:
        return False
    if often >= min(policy.preemptions_max, policy.gang_preemptions_max):
        return False
    below = [path for path in above(job.spec.queue) if len(path) >= len(level)]
    return all(use.all[path, gpu_type] > guarantee_of(ledger, policy, path, gpu_type) for path in below)


def on_one_node(ledger: Ledger, job_id: str) -> str | None:
    """Return the node of a job that runs on a single one."""
    live = ledger.jobs[job_id].live
    nodes = {share.node_id for share in live.shares} if live is not None else set()
    return nodes.pop() if len(nodes) == 1 else None


def is_scattered(ledger: Ledger, job_id: str) -> bool:
    """Whether a job takes parts of several devices, or a part of one besides whole ones: what that frees is no sum."""
    live = ledger.jobs[job_id].live
    shares = [share for share in live.shares if share.gpus] if live is not None else []
    devices = {(share.node_id, gpu) for share in shares for gpu in share.gpus}
    return len(devices) > 1 and any(share.gpu_milli < WHOLE_MILLI for share in shares)


def cost_of(ledger: Ledger, job_id: str) -> int:
    """Return what is lost if a job gives way: GPUs times seconds since its last committed checkpoint; of equals few."""
    job = ledger.jobs[job_id]
    milli = sum(milli_of(share) for share in job.live.shares) if job.live is not None else 0
    return (milli * ((ledger.now_us - job.committed_us) // SECOND_US) << COUNT_BITS) + 1
