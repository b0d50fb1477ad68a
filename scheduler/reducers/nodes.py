"""Nodes: what agents registered, and what is free of it."""

from bisect import bisect_left

from msgspec.structs import replace

from gangline.events.control import NodeRegistered
from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.holding import counted
from gangline.scheduler.journal import put_node
from gangline.scheduler.order import natural
from gangline.scheduler.reducers.faults import lose_ranks, note_fault, trouble
from gangline.scheduler.state import Node, State

MAX_NAME_CHARACTERS = 253
"""The longest host name (RFC 1035). Bindings repeat names for every node of a gang, and must stay within a record."""

MAX_REGISTRATIONS = 32
"""Registrations of a node that are known again: an agent's start each, and repeats come within minutes."""


def node_registered(state: State, event: NodeRegistered) -> State:
    """Add a node, or take over what a restarted agent found; what live attempts hold stays held.

    Shares of ended attempts that the agent does not list are gone; a boot ends all ranks, and mends what was broken.
    """
    gpus = _checked(event)
    old = state.nodes.get(event.node_id)
    before = old.registered if old is not None else ()
    if event.meta.event_id in before:
        return state
    same_boot = old is not None and old.boot_id == event.boot_id
    listed = [(one.job_id, one.attempt) for one in event.attempts]
    node = Node(
        node_id=event.node_id,
        boot_id=event.boot_id,
        agent_id=event.agent_id,
        registered=(*before, event.meta.event_id)[-MAX_REGISTRATIONS:],
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
            held=old.held,
            heard=old.heard,
            next_port=old.next_port,
            cordoned=old.cordoned,
            draining=old.draining,
            cordon_reason=old.cordon_reason,
            check_index=old.check_index,
            # An agent registers once: that of one that was lost is no sign of life.
            lost=old.lost and old.agent_id == event.agent_id,
            stale=tuple(one for one in old.stale if not event.attempts_listed or (one.job_id, one.attempt) in listed),
            broken_gpus=old.broken_gpus if same_boot else (),
            faults=old.faults,
            sick=old.sick,
            quarantined=old.quarantined,
            quarantined_until_us=old.quarantined_until_us,
            quarantine_reason=old.quarantine_reason,
        )
    else:
        place = bisect_left(state.node_order, natural(node.node_id), key=natural)
        order = (*state.node_order[:place], node.node_id, *state.node_order[place:])
        state = replace(state, node_order=order)
    node = counted(state, node)
    state = put_node(state, node, placement_due=True)
    if node.check_index is not None:
        # The agent that was asked may have gone before it could answer.
        state = trouble(state, node.node_id)
    if old is None or same_boot or not old.held:
        return state
    state = note_fault(state, node.node_id, "it booted while ranks ran there")
    return lose_ranks(state, node.node_id, f"node {node.node_id} booted")


def _checked(event: NodeRegistered) -> tuple[int, ...]:
    """Return the indexes of the node's GPUs, ascending. Raises Inapplicable for what cannot be."""
    for name in (event.node_id, event.address, event.pod, event.gpu_type):
        if not name or len(name) > MAX_NAME_CHARACTERS:
            raise Inapplicable(f"node {event.node_id[:MAX_NAME_CHARACTERS]!r} registers an empty or a very long name")
    gpus = tuple(sorted(gpu.index for gpu in event.gpus))
    if len(set(gpus)) < len(gpus) or min(event.cpu_milli, event.memory_bytes, *gpus, 0) < 0:
        raise Inapplicable(f"node {event.node_id!r} registers what cannot be: an index twice, or less than nothing")
    return gpus
