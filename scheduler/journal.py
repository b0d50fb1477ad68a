"""What changed in the state: reducers put jobs and nodes through here, so that derived indexes can follow cheaply.

`state.changed` is a list of links, each `(what, id, the link before it)`, cut at the end of every round, where the
first link names the round. It is no part of the state's canonical bytes.
"""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec.structs import replace

from gangline.events.decisions import NodesReserved, RoomHeld
from gangline.scheduler.state import Job, Node, State

What = Literal["job", "node", "room", "reserved", "policy", "worth", "round"]

Link = tuple[Any, ...]
"""`(what, id, the link before it or None)`; a plain tuple, for those free long lists without recursion."""


def put_job(state: State, job: Job, **others: object) -> State:
    """Return the state with this job, and other fields changed along with it."""
    return replace(
        state,
        jobs=state.jobs.set(job.job_id, job),
        changed=("job", job.job_id, state.changed),
        **others,
    )


def drop_job(state: State, job_id: str, **others: object) -> State:
    """Return the state without a job."""
    return replace(state, jobs=state.jobs.delete(job_id), changed=("job", job_id, state.changed), **others)


def put_node(state: State, node: Node, **others: object) -> State:
    """Return the state with this node, and other fields changed along with it."""
    return replace(
        state,
        nodes=state.nodes.set(node.node_id, node),
        changed=("node", node.node_id, state.changed),
        **others,
    )


def put_room(state: State, room: RoomHeld) -> State:
    """Return the state with shares held for a claimant."""
    return replace(
        state, room=state.room.set(room.job_id, room), changed=("room", room.job_id, state.changed), placement_due=True
    )


def drop_room(state: State, job_id: str) -> State:
    """Return the state with nothing held for a job any more."""
    if job_id not in state.room:
        return state
    return replace(state, room=state.room.delete(job_id), changed=("room", job_id, state.changed), placement_due=True)


def put_reserved(state: State, reserved: NodesReserved) -> State:
    """Return the state with nodes reserved for a gang."""
    return replace(
        state,
        reserved=state.reserved.set(reserved.job_id, reserved),
        changed=("reserved", reserved.job_id, state.changed),
        placement_due=True,
    )


def drop_reserved(state: State, job_id: str) -> State:
    """Return the state with no nodes reserved for a job any more."""
    if job_id not in state.reserved:
        return state
    return replace(
        state,
        reserved=state.reserved.delete(job_id),
        changed=("reserved", job_id, state.changed),
        placement_due=True,
        reopened=True,
    )


def put_policy_changed(state: State) -> State:
    """Note that the policy, and with it the tree of queues, is another one."""
    return replace(state, changed=("policy", "", state.changed))


def put_worth_changed(state: State) -> State:
    """Note that holes are worth something else."""
    return replace(state, changed=("worth", "", state.changed))


def cut(tick_event_id: bytes) -> Link:
    """Return the first link after the round of a tick: no two rounds that count have the same one."""
    return ("round", tick_event_id, None)


def since(changed: Link | None, seen: Link | None) -> Iterator[tuple[What, str]] | None:
    """Return what changed after `seen`, latest first; None if `seen` is no link of the list, so that all may have."""
    found: list[tuple[What, str]] = []
    link = changed
    while link is not None:
        if link is seen or (link[0] == "round" and seen is not None and seen[0] == "round" and link[1] == seen[1]):
            return iter(found)
        found.append((link[0], link[1]))
        link = link[2]
    return None
