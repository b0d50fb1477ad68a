"""Answers to commands about nodes: cordon, uncordon, drain, check."""

from gangline.events import control
from gangline.events.decisions import NodeCheckOrdered, RoomReleased
from gangline.events.policy import Policy
from gangline.events.types import Decision
from gangline.scheduler.reducers.faults import MAX_REASON_CHARACTERS
from gangline.scheduler.room.orders import order
from gangline.scheduler.round import Round
from gangline.scheduler.rules.refusals import Asked, listed, shown
from gangline.scheduler.state import Node, State


def cordon(round_: Round, _policy: Policy, asked: Asked, command: control.CordonNode) -> tuple[Decision, ...]:
    """Start nothing new on a node."""
    node = round_.state.nodes.get(command.node_id)
    if node is None:
        return asked.refused(_unknown(round_.state, command.node_id))
    if node.cordoned and _says_nothing_new(node, command.reason):
        why = f" ({node.cordon_reason})" if node.cordon_reason else ""
        way_out = f"`gangline node uncordon {node.node_id}` lets it be used again"
        return asked.refused(f"node '{node.node_id}' is cordoned already{why}: {way_out}")
    return (asked.accepted(), *_released(round_.state, command.node_id, "cordoned"))


def uncordon(round_: Round, _policy: Policy, asked: Asked, command: control.UncordonNode) -> tuple[Decision, ...]:
    """Use a node again, whatever was held against it."""
    node = round_.state.nodes.get(command.node_id)
    if node is None:
        return asked.refused(_unknown(round_.state, command.node_id))
    held_against = node.cordoned or node.draining or node.quarantined or node.sick or node.broken_gpus or node.faults
    if not held_against:
        lost = ", but lost: it is used again when its agent is heard of" if node.lost else ""
        return asked.refused(
            f"node '{node.node_id}' is neither cordoned nor drained nor quarantined{lost}: `gangline nodes` shows them"
        )
    return (asked.accepted(),)


def drain(round_: Round, policy: Policy, asked: Asked, command: control.DrainNode) -> tuple[Decision, ...]:
    """Empty a node: preemptible jobs are requeued, the others end by themselves, nothing new starts."""
    state = round_.state
    node = state.nodes.get(command.node_id)
    if node is None:
        return asked.refused(_unknown(state, command.node_id))
    running = [(state.jobs[job_id], state.jobs[job_id].attempt) for job_id in node.held]
    orders = [
        order(state, policy, job.job_id, "drain")
        for job, attempt in running
        if job.spec.preemptible and attempt is not None and not attempt.is_stopping and attempt.failure is None
    ]
    return (asked.accepted(), *_released(state, command.node_id, "drained"), *orders)


def check(round_: Round, _policy: Policy, asked: Asked, command: control.CheckNode) -> tuple[Decision, ...]:
    """Let a node's agent examine it."""
    node = round_.state.nodes.get(command.node_id)
    if node is None:
        return asked.refused(_unknown(round_.state, command.node_id))
    if node.lost:
        return asked.refused(
            f"node '{node.node_id}' is lost, so nobody there can examine it: see whether the machine and its agent run"
        )
    return (asked.accepted(), NodeCheckOrdered(node_id=node.node_id, check_index=asked.control_index))


def _says_nothing_new(node: Node, reason: str) -> bool:
    """Whether a reason leaves the one of a node as it is; an operator may put another in its place."""
    return not reason or reason[:MAX_REASON_CHARACTERS] == node.cordon_reason


def _unknown(state: State, node_id: str) -> str:
    """Return what answers a command about a node that there is not."""
    there = f"those there are: {listed(state.node_order)}" if state.node_order else "no node has registered yet"
    return f"there is no node '{shown(node_id)}': {there}"


def _released(state: State, node_id: str, done: str) -> list[RoomReleased]:
    """Return the end of every hold that could not be used any more; its claimant looks for room elsewhere."""
    return [
        RoomReleased(job_id=job_id, cause=f"node {node_id} was {done}")
        for job_id, room in sorted(state.room.items())
        if any(share.node_id == node_id for share in room.shares)
    ]
