"""Jobs for which shares are held are bound to them, as soon as all of them are free.

What is held for a recovering gang may be less than it needs: then it is bound as soon as there is room for it together
with what others have left, on spare nodes first. And a claimant whose victims are not gone yet starts elsewhere, if it
fits there together with what they have left already.
"""

from collections.abc import Sequence

import numpy as np

from gangline.events.decisions import GangBound
from gangline.events.policy import Policy
from gangline.events.types import WHOLE_MILLI, Share
from gangline.scheduler.elastic import is_elastic, least
from gangline.scheduler.placement import place
from gangline.scheduler.recovery import is_whole
from gangline.scheduler.round import Round
from gangline.scheduler.rules.placement import allowed_nodes, binding, free_port
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.spares import spare_nodes
from gangline.scheduler.state import Job, Node, State
from gangline.scheduler.views import Views


def decide(round_: Round) -> None:
    """Bind every job whose held shares are free, if anything came since the last round that could have freed them."""
    policy = round_.policy
    if policy is None or not round_.state.placement_due:
        return
    for job_id in sorted(round_.state.room):
        state = round_.state
        job, room = state.jobs.get(job_id), state.room[job_id]
        if job is None or job_id not in state.pending or job.held or job.barriers:
            continue
        shares: tuple[Share, ...] | None = room.shares
        if not is_whole(policy, job.spec, room.shares):
            shares = _completed(round_, policy, job)
        elif not _are_free(state, room.shares):
            shares = None if is_elastic(policy, job.spec) else _elsewhere(round_, policy, job)
        bound = None if shares is None else _binding(round_, policy, job, shares)
        if bound is not None and not round_.emit(bound):
            return


def _binding(round_: Round, policy: Policy, job: Job, shares: tuple[Share, ...]) -> GangBound | None:
    state = round_.state
    port = free_port(state, policy, state.nodes[shares[0].node_id])
    return None if port is None else binding(round_, job, shares, port)


def _completed(round_: Round, policy: Policy, job: Job) -> tuple[Share, ...] | None:
    """Return where a recovering gang fits now that has less held than it needs; None if it still does not."""
    state, views = round_.state, round_.views
    shape = shape_of(least(policy, job.spec))
    with views.lent(state, job.job_id):
        barred, allowed = allowed_nodes(state, policy, views, job)
        if barred:
            return None
        spares = spare_nodes(policy, views)
        if spares is not None:
            held = np.zeros(views.nodes.fleet.size, np.bool_)
            held[[views.nodes.fleet.row[share.node_id] for share in state.room[job.job_id].shares]] = True
            near = spares | held if allowed is None else allowed & (spares | held)
            shares = place(views.nodes.fit, state.nodes, shape, near)
            if shares is not None:
                return shares
        return place(views.nodes.fit, state.nodes, shape, allowed)


def _elsewhere(round_: Round, policy: Policy, job: Job) -> tuple[Share, ...] | None:
    """Return where a claimant fits now, though its victims still have something of what is held for it."""
    state, views = round_.state, round_.views
    if not _could_fit(state, views, job):
        return None
    with views.lent(state, job.job_id):
        barred, allowed = allowed_nodes(state, policy, views, job)
        return None if barred else place(views.nodes.fit, state.nodes, shape_of(job.spec), allowed)


def _could_fit(state: State, views: Views, job: Job) -> bool:
    """Whether a node may have as many whole devices free as the job needs of one; True where more is to be asked."""
    shape, fleet = shape_of(job.spec), views.nodes.fleet
    is_large = shape.gpus > fleet.widest_of(shape.gpu_types) or shape.nodes not in {None, 1}
    if is_large or shape.gpu_milli < WHOLE_MILLI or shape.roles:
        return True
    if int(fleet.whole_free.max(initial=0)) >= shape.gpus:
        return True
    for share in state.room[job.job_id].shares:
        node = state.nodes.get(share.node_id)
        row = fleet.row.get(share.node_id)
        if node is None or row is None:
            return True
        free = dict(zip(node.gpus, node.free_milli, strict=True))
        held = sum(free.get(gpu, 0) == WHOLE_MILLI for gpu in share.gpus)
        if int(fleet.whole_free[row]) + held >= shape.gpus:
            return True
    return False


def _are_free(state: State, shares: Sequence[Share]) -> bool:
    """Whether nobody has what is held; shares may lie on one device, and on one node, of which all are needed."""
    node_ids = dict.fromkeys(share.node_id for share in shares)
    return all(
        _holds(state.nodes.get(node_id), [share for share in shares if share.node_id == node_id])
        for node_id in node_ids
    )


def _holds(node: Node | None, shares: Sequence[Share]) -> bool:
    if node is None or node.is_blocked:
        return False
    free = dict(zip(node.gpus, node.free_milli, strict=True))
    for share in shares:
        for gpu in share.gpus:
            free[gpu] = free.get(gpu, 0) - share.gpu_milli
            if free[gpu] < 0:
                return False
    cpu_milli = sum(share.cpu_milli for share in shares)
    memory_bytes = sum(share.memory_bytes for share in shares)
    return (not cpu_milli or node.cpu_free_milli >= cpu_milli) and (
        not memory_bytes or node.memory_free_bytes >= memory_bytes
    )
