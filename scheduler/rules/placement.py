"""Pending jobs get their gangs, in turn; what does not fit is skipped, and nothing that fits is held back.

Only quota, holds, reservations and spares keep a job from nodes that would hold it, and that they could not launch it.
"""

import numpy as np

from gangline.events.decisions import GangBound
from gangline.events.ids import derived
from gangline.events.policy import Policy
from gangline.events.types import RoleLaunch, Share
from gangline.scheduler.elastic import is_elastic, largest, least, of_size, sizes
from gangline.scheduler.fleet import Flags
from gangline.scheduler.grace import grace_us
from gangline.scheduler.kept_quota import kept_from
from gangline.scheduler.line import Line
from gangline.scheduler.placement import place
from gangline.scheduler.reservations import expected_end_us, is_hard
from gangline.scheduler.roles import place_whole
from gangline.scheduler.round import Round
from gangline.scheduler.shapes import Shape, shape_of
from gangline.scheduler.spares import spare_nodes
from gangline.scheduler.state import Job, Node, State
from gangline.scheduler.timers import is_due
from gangline.scheduler.turns import is_guaranteed_before, waited_us
from gangline.scheduler.views import Views
from gangline.scheduler.views.pending import GroupKey
from gangline.scheduler.views.uses import quota_is_on

MAX_BACKFILL = 32
"""Jobs of a group that are looked at while nodes are reserved; the first may last too long where another does not."""
MAX_PORT_TRIES = 8
"""Nodes whose rendezvous ports are used up, for one job in one round."""


def decide(round_: Round) -> None:
    """Bind every pending job that fits, if anything came since the last round that could let one start.

    Where nodes are reserved time alone may let one start there, too.
    """
    _bind(round_)
    round_.placed = len(round_.decisions)


def _bind(round_: Round) -> None:
    policy, state = round_.policy, round_.state
    if policy is None or not (state.placement_due or (state.reserved and is_due(state, policy.room_interval_us))):
        return
    pending = round_.views.pending
    groups = [
        group
        for shape in pending.by_shape
        if policy.head_blocks or shape not in pending.failed
        for group in pending.by_shape[shape]
    ]
    if not groups or not round_.views.nodes.fleet.size:
        return
    line = Line(round_.state, policy, round_.views, groups)
    failed: dict[tuple[Shape, bytes | None], None] = {}
    while (picked := line.pick()) is not None:
        group, head = picked
        bound = None
        if group.shape not in pending.failed:
            first = round_.state.jobs[head[-1]]
            bound = _try(round_, policy, first, group.shape, failed)
            if bound is None and (round_.state.reserved or first.excused_in_row) and not policy.head_blocks:
                bound = _backfill(round_, policy, group, failed, first)
        if bound is None:
            if policy.head_blocks:
                return
            if group.shape in pending.failed:
                line.close_shape(group.shape)
            else:
                line.close(group)
            continue
        if not round_.emit(bound):
            return
        line.bound(round_.state, round_.views, group)


def decide_again(round_: Round) -> None:
    """Bind what fits since room was made or a reservation dropped in this round: victims no longer count for quota."""
    if len(round_.decisions) > round_.placed:
        decide(round_)


def _backfill(
    round_: Round, policy: Policy, group: GroupKey, failed: dict[tuple[Shape, bytes | None], None], first: Job
) -> GangBound | None:
    """Return the binding of one that is not the first of its group, and may have nodes that the first may not.

    One with nodes reserved, or that ends in time, or any if the first could not be launched on some of them.
    """
    state, views = round_.state, round_.views
    last_us = max((reserved.free_at_us for _, reserved in sorted(state.reserved.items())), default=0)
    for *_, job_id in views.pending.groups[group][1:MAX_BACKFILL]:
        if group.shape in views.pending.failed:
            return None
        job = state.jobs[job_id]
        ends_before = job.spec.max_runtime_us is not None and state.now_us + job.spec.max_runtime_us <= last_us
        if ends_before or job_id in state.reserved or first.excused_in_row:
            bound = _try(round_, policy, job, group.shape, failed)
            if bound is not None:
                return bound
    return None


def _try(
    round_: Round, policy: Policy, job: Job, shape: Shape, failed: dict[tuple[Shape, bytes | None], None]
) -> GangBound | None:
    """Return the binding of a job, or None if there is no room for it, or none that it may have.

    An elastic gang gets the most that fits: up to what it asks for first while others wait, else up to its largest.
    """
    bound = _try_shape(round_, policy, job, shape, failed)
    if bound is None or not is_elastic(policy, job.spec):
        return bound
    alone = round_.views.pending.waiting == 1
    options = [size for size in sizes(policy, job.spec) if shape.gpus < size and (alone or size <= job.spec.gpus)]

    def larger(size: int) -> GangBound | None:
        return _try_shape(round_, policy, of_size(job, size), shape._replace(gpus=size), failed)

    return largest(options, larger) or bound


def _try_shape(
    round_: Round, policy: Policy, job: Job, shape: Shape, failed: dict[tuple[Shape, bytes | None], None]
) -> GangBound | None:
    views = round_.views
    barred, allowed = allowed_nodes(round_.state, policy, views, job)
    if barred:
        return None
    tried = (shape, None if allowed is None else allowed.tobytes())
    if tried in failed:
        return None
    for _ in range(MAX_PORT_TRIES):
        shares = place(views.nodes.fit, round_.state.nodes, shape, allowed)
        if shares is None:
            failed[tried] = None
            if shape not in views.pending.by_shape:
                return None  # a larger size of an elastic gang: that there is no room for it says nothing of others
            # Roles are placed one after the other: they may find room on some of the nodes, and none on all.
            never = not shape.roles
            if never and (allowed is None or place(views.nodes.fit, round_.state.nodes, shape) is None):
                views.pending.failed[shape] = None
            return None
        port = free_port(round_.state, policy, round_.state.nodes[shares[0].node_id])
        if port is not None:
            return binding(round_, job, shares, port)
        allowed = np.ones(views.nodes.fleet.size, np.bool_) if allowed is None else allowed.copy()
        allowed[views.nodes.fleet.row[shares[0].node_id]] = False
    return None


def allowed_nodes(state: State, policy: Policy, views: Views, job: Job) -> tuple[bool, Flags | None]:
    """Return whether quota bars a job altogether, and else on which nodes it may be placed (None: all)."""
    spec = job.spec
    mask: Flags | None = None
    milli = shape_of(least(policy, spec)).milli
    if quota_is_on(policy) and milli:
        types = spec.gpu_types or views.uses.tree.types
        free = [
            gpu_type
            for gpu_type in types
            if views.uses.allows(spec.queue, gpu_type, milli, preemptible=spec.preemptible)
            and (not state.reserved or kept_from(state, policy, views, job, gpu_type) is None)
        ]
        if not free:
            return True, None
        if len(free) < len(types):
            mask = views.nodes.fleet.types_mask(free)
    kept = kept_nodes(state, policy, views, job)
    if kept is not None:
        mask = ~kept if mask is None else mask & ~kept
    return False, mask


def kept_nodes(state: State, policy: Policy, views: Views, job: Job) -> Flags | None:
    """Return the nodes that are kept for others than this job, or could not launch it; None if there are none."""
    kept: Flags | None = None
    spares = None if job.recovering else spare_nodes(policy, views)
    for bar in (_reserved(state, policy, views, job), spares, failed_nodes(state, policy, views, job)):
        if bar is not None:
            kept = bar if kept is None else kept | bar
    return kept


def _reserved(state: State, policy: Policy, views: Views, job: Job) -> Flags | None:
    """Return the nodes that wait for others, and that this job would not leave in time."""
    reserved = views.nodes.reserved
    if not reserved:
        return None
    bar: Flags | None = None
    ends_us = expected_end_us(state, job)
    for job_id in sorted(reserved):
        if job_id != job.job_id and not is_let_in(state, policy, views, job, job_id, ends_us):
            bar = np.zeros(views.nodes.fleet.size, np.bool_) if bar is None else bar
            bar[reserved[job_id]] = True
    return bar


def failed_nodes(state: State, policy: Policy, views: Views, job: Job) -> Flags | None:
    """Return the nodes that could not launch this job before; None if there are none, or no others could hold it.

    Else it would start on one of them again and again, as it fails at once there, and soon end of it.
    """
    if not job.excused_in_row:
        return None
    fleet = views.nodes.fleet
    failed = [any(fault.job_id == job.job_id for fault in state.nodes[node_id].faults) for node_id in fleet.node_ids]
    if not any(failed):
        return None
    bar: Flags = np.array(failed, np.bool_)
    others = ~bar & ~fleet.blocked
    return bar if place_whole(views.nodes.empty, shape_of(least(policy, job.spec)), others) is not None else None


def is_let_in(  # noqa: PLR0917 - who asks, and at whose nodes
    state: State, policy: Policy, views: Views, job: Job, job_id: str, ends_us: int | None
) -> bool:
    """Whether a job may start on the nodes that are reserved for another one: for one that starts and ends before.

    The guarantee wins over a reservation for one outside its own, but takes back what is borrowed first: else jobs
    within guarantee would fill those nodes again and again, which would idle, and never be free.
    """
    reserving = state.jobs[job_id]
    if is_guaranteed_before(views, policy, job, reserving) and (
        job.recovering
        or "reclaim" not in policy.rules
        or waited_us(state, job) >= policy.reclaim_after_us + policy.reclaim_interval_us
    ):
        return True
    in_time = ends_us is not None and ends_us <= state.reserved[job_id].free_at_us
    return in_time and not is_hard(state, policy, reserving)


def binding(round_: Round, job: Job, shares: tuple[Share, ...], port: int) -> GangBound:
    """Return the decision that starts a job's next attempt on these shares."""
    spec = job.spec
    return GangBound(
        job_id=job.job_id,
        attempt=job.attempts + 1,
        shares=shares,
        world_size=sum(len(share.ranks) for share in shares),
        master_address=shares[0].address,
        master_port=port,
        resume=job.checkpoints,
        name=spec.name,
        command=spec.command,
        env=spec.env,
        grace_us=grace_us(round_, job),
        code=spec.code,
        checkpoints=spec.checkpoints,
        roles=tuple(RoleLaunch(name=role.name, command=role.command or spec.command) for role in spec.roles),
        array_index=job.array_index,
        idle_timeout_us=_idle_timeout_us(round_.policy, job),
    )


def _idle_timeout_us(policy: Policy | None, job: Job) -> int | None:
    if not job.spec.interactive or policy is None or "interactive" not in policy.rules:
        return None
    return policy.idle_timeout_us if job.spec.idle_timeout_us is None else job.spec.idle_timeout_us


def free_port(state: State, policy: Policy, node: Node) -> int | None:
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
