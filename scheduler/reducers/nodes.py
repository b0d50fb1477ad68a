"""Nodes: what agents registered, and what is free of it."""

from msgspec.structs import replace

from gangline.events.control import NodeRegistered
from gangline.events.types import Share
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.state import Node, State

WHOLE_MILLI = 1000


def node_registered(state: State, event: NodeRegistered) -> State:
    """Add a node, or take over what a restarted agent found; what live attempts hold stays held."""
    gpus = tuple(gpu.index for gpu in event.gpus)
    if len(set(gpus)) < len(gpus) or min(event.cpu_milli, event.memory_bytes, *gpus, 0) < 0 or not event.node_id:
        raise Inapplicable(f"node {event.node_id!r} registers what cannot be: an index twice, or less than nothing")
    old = state.nodes.get(event.node_id)
    used_milli: dict[int, int] = {}
    cpu_used_milli = memory_used_bytes = 0
    if old is not None:
        used_milli = {gpu: WHOLE_MILLI - free for gpu, free in zip(old.gpus, old.free_milli, strict=True)}
        cpu_used_milli = old.cpu_milli - old.cpu_free_milli
        memory_used_bytes = old.memory_bytes - old.memory_free_bytes
    node = Node(
        node_id=event.node_id,
        boot_id=event.boot_id,
        agent_id=event.agent_id,
        address=event.address,
        pod=event.pod,
        gpu_type=event.gpu_type,
        gpus=gpus,
        free_milli=tuple(WHOLE_MILLI - used_milli.get(gpu, 0) for gpu in gpus),
        cpu_milli=event.cpu_milli,
        cpu_free_milli=event.cpu_milli - cpu_used_milli,
        memory_bytes=event.memory_bytes,
        memory_free_bytes=event.memory_bytes - memory_used_bytes,
        next_port=old.next_port if old is not None else 0,
    )
    return replace(state, nodes=state.nodes.set(node.node_id, node), placement_due=True)


def take(node: Node, share: Share) -> Node:
    """Return the node with a share taken from what is free."""
    return _change(node, share, -1)


def give_back(node: Node, share: Share) -> Node:
    """Return the node with a share free again. Devices that it no longer has are left out."""
    return _change(node, share, 1)


def _change(node: Node, share: Share, sign: int) -> Node:
    return replace(
        node,
        free_milli=tuple(
            free + sign * share.gpu_milli if gpu in share.gpus else free
            for gpu, free in zip(node.gpus, node.free_milli, strict=True)
        ),
        cpu_free_milli=node.cpu_free_milli + sign * share.cpu_milli,
        memory_free_bytes=node.memory_free_bytes + sign * share.memory_bytes,
    )
