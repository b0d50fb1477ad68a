"""Nodes: what agents registered, and what is free of it."""

from bisect import bisect_left

from msgspec.structs import replace

from gangline.events.control import NodeRegistered
from gangline.events.types import Share
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.journal import put_node
from gangline.scheduler.order import natural
from gangline.scheduler.state import Node, State

WHOLE_MILLI = 1000
MAX_NAME_CHARACTERS = 253
"""The longest host name (RFC 1035). Bindings repeat names for every node of a gang, and must stay within a record."""


def node_registered(state: State, event: NodeRegistered) -> State:
    """Add a node, or take over what a restarted agent found; what live attempts hold stays held."""
    for name in (event.node_id, event.address, event.pod, event.gpu_type):
        if not name or len(name) > MAX_NAME_CHARACTERS:
            raise Inapplicable(f"node {event.node_id[:MAX_NAME_CHARACTERS]!r} registers an empty or a very long name")
    gpus = tuple(sorted(gpu.index for gpu in event.gpus))
    if len(set(gpus)) < len(gpus) or min(event.cpu_milli, event.memory_bytes, *gpus, 0) < 0:
        raise Inapplicable(f"node {event.node_id!r} registers what cannot be: an index twice, or less than nothing")
    old = state.nodes.get(event.node_id)
    node = Node(
        node_id=event.node_id,
        boot_id=event.boot_id,
        agent_id=event.agent_id,
        address=event.address,
        pod=event.pod,
        gpu_type=event.gpu_type,
        gpus=gpus,
        free_milli=(WHOLE_MILLI,) * len(gpus),
        cpu_milli=event.cpu_milli,
        cpu_free_milli=event.cpu_milli,
        memory_bytes=event.memory_bytes,
        memory_free_bytes=event.memory_bytes,
    )
    if old is not None:
        node = replace(
            node,
            next_port=old.next_port,
            cordoned=old.cordoned,
            draining=old.draining,
            lost=False,
            quarantined=old.quarantined,
            quarantined_until_us=old.quarantined_until_us,
            faults_us=old.faults_us,
        )
    # Counted from the gangs, for a device that was missing for a while is still held by the gang that had it.
    for job_id in old.held if old is not None else ():
        attempt = state.jobs[job_id].attempt
        for share in attempt.bound.shares if attempt is not None else ():
            if share.node_id == node.node_id:
                node = take(node, share, job_id)
    if old is None:
        place = bisect_left(state.node_order, natural(node.node_id), key=natural)
        order = (*state.node_order[:place], node.node_id, *state.node_order[place:])
        state = replace(state, node_order=order)
    return put_node(state, node, placement_due=True)


def take(node: Node, share: Share, job_id: str) -> Node:
    """Return the node with the share of a job taken from what is free. Devices that it does not have are left out."""
    return _change(node, share, -1, tuple(sorted((*node.held, job_id))))


def give_back(node: Node, share: Share, job_id: str) -> Node:
    """Return the node with the share of a job free again. Devices that it no longer has are left out."""
    return _change(node, share, 1, tuple(held for held in node.held if held != job_id))


def _change(node: Node, share: Share, sign: int, held: tuple[str, ...]) -> Node:
    return replace(
        node,
        held=held,
        free_milli=tuple(
            free + sign * share.gpu_milli if gpu in share.gpus else free
            for gpu, free in zip(node.gpus, node.free_milli, strict=True)
        ),
        cpu_free_milli=node.cpu_free_milli + sign * share.cpu_milli,
        memory_free_bytes=node.memory_free_bytes + sign * share.memory_bytes,
    )
