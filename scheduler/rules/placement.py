"""Pending jobs get their gangs, in order; what does not fit is skipped, unless policy says that it blocks."""

from gangline.events.decisions import GangBound
from gangline.events.ids import derived
from gangline.events.policy import Policy
from gangline.scheduler.order import place_in_order
from gangline.scheduler.placement import Shape, place, shape_of
from gangline.scheduler.round import Round
from gangline.scheduler.rules.attempts import grace_us
from gangline.scheduler.state import Node, State


def decide(round_: Round) -> None:
    """Bind every pending job that fits, if anything came since the last round that could let one start."""
    policy = round_.policy
    if policy is None or not round_.state.placement_due:
        return
    pending = (round_.state.jobs[job_id] for job_id in sorted(round_.state.pending))
    jobs = sorted(pending, key=lambda job: place_in_order(job, policy))
    fleet = [node for node in round_.fleet if not node.is_blocked]
    position = {node.node_id: index for index, node in enumerate(fleet)}
    # Within a round things only fill up, so what failed once fails again.
    failed: set[Shape] = set()
    for job in jobs:
        shape = shape_of(job.spec)
        if shape in failed:
            continue
        shares = place(fleet, job.spec)
        port = None if shares is None else _free_port(round_.state, policy, round_.state.nodes[shares[0].node_id])
        if shares is None or port is None:
            if policy.head_blocks:
                return
            failed.add(shape)
            continue
        spec = job.spec
        bound = GangBound(
            job_id=job.job_id,
            attempt=job.attempts + 1,
            shares=shares,
            world_size=spec.gpus,
            master_address=shares[0].address,
            master_port=port,
            resume=job.checkpoints,
            name=spec.name,
            command=spec.command,
            env=spec.env,
            grace_us=grace_us(round_, job),
            code=spec.code,
            checkpoints=spec.checkpoints,
        )
        if not round_.emit(bound):
            return
        for share in shares:
            fleet[position[share.node_id]] = round_.state.nodes[share.node_id]


def _free_port(state: State, policy: Policy, node: Node) -> int | None:
    """Return the next port of the policy's range that no live attempt uses on this node, after the one used last.

    Where a log begins in the range follows from its id, so that two ganglines on one machine rarely want the same port.
    """
    bound = [attempt.bound for job_id in node.held if (attempt := state.jobs[job_id].attempt) is not None]
    used = [gang.master_port for gang in bound if gang.shares[0].node_id == node.node_id]
    start = node.next_port - policy.port_first
    if start < 0:
        start = int.from_bytes(derived(state.log_id, 0, "port")[:4])
    for step in range(policy.port_count):
        port = policy.port_first + (start + step) % policy.port_count
        if port not in used:
            return port
    return None
