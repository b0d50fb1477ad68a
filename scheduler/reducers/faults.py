"""What befalls nodes: lost and heard of again, broken, examined, quarantined and released.

What counts as a node's fault, and what as a job's, is in docs/decisions/0010-whose-fault.md.
"""

from msgspec.structs import replace

from gangline.events.control import NodeChecked, NodeFaulted, NodeLost, NodeRecovered
from gangline.events.decisions import NodeCheckOrdered, NodeQuarantined, NodeReleased
from gangline.scheduler.holding import counted
from gangline.scheduler.journal import put_job, put_node
from gangline.scheduler.state import Attempt, Fault, Node, State
from gangline.scheduler.timers import clear_timer, set_timer

MAX_FAULTS = 16
"""Faults that a node remembers; policies count fewer."""

MAX_HEARD = 16
"""Losses, recoveries and faults of a node that are known again when they are repeated, which is within minutes."""

MAX_REASON_CHARACTERS = 200
"""Of what is said about a node; rounds repeat it for every gang that had ranks there."""


def node_lost(state: State, event: NodeLost) -> State:
    """Fail what has ranks on the node; nothing starts there until it is heard of, and those are known to be gone."""
    state, node = _heard(state, event)
    if node is None or node.lost or node.boot_id != event.boot_id:
        return state  # not known, a repeat, or older than what the node itself has said since
    state = put_node(state, replace(node, lost=True))
    state = note_fault(state, node.node_id, "it was lost")
    return lose_ranks(state, node.node_id, f"node {node.node_id} was lost", lost=True)


def node_recovered(state: State, event: NodeRecovered) -> State:
    """Count with a lost node again; what its agent has not reported gone is still held there."""
    state, node = _heard(state, event)
    if node is None or not node.lost or node.boot_id != event.boot_id:
        return state
    return put_node(state, replace(node, lost=False), placement_due=True)


def _heard(state: State, event: NodeLost | NodeRecovered | NodeFaulted) -> tuple[State, Node | None]:
    """Return the state in which this was heard, and the node; None if it is not known, or that was heard before."""
    node = state.nodes.get(event.node_id)
    if node is None or event.meta.event_id in node.heard:
        return state, None
    node = replace(node, heard=(*node.heard, event.meta.event_id)[-MAX_HEARD:])
    return put_node(state, node), node


def node_faulted(state: State, event: NodeFaulted) -> State:
    """Take a broken GPU, or the node as a whole, out of use, and fail what runs on it."""
    state, node = _heard(state, event)
    reason = event.reason[:MAX_REASON_CHARACTERS]
    if node is None:
        return state  # not known, or a repeat: what broke then may have been replaced since
    if event.gpu is None:
        if node.sick or (node.quarantined and node.quarantined_until_us is None):
            return state
        state = trouble(put_node(state, replace(node, sick=reason or "its hardware failed")), node.node_id)
        return lose_ranks(state, node.node_id, f"node {node.node_id} failed: {reason}")
    if event.gpu not in node.gpus or event.gpu in node.broken_gpus:
        return state
    broken = tuple(sorted((*node.broken_gpus, event.gpu)))
    # A node that is not whole any more is no spare one: others may start there now.
    state = put_node(state, counted(state, replace(node, broken_gpus=broken)), placement_due=True)
    state = note_fault(state, node.node_id, f"its GPU {event.gpu} failed: {reason}")
    text = f"GPU {event.gpu} of node {node.node_id} failed: {reason}"
    return lose_ranks(state, node.node_id, text, gpu=event.gpu)


def node_check_ordered(state: State, decision: NodeCheckOrdered) -> State:
    """Wait for the agent's report."""
    node = state.nodes[decision.node_id]
    return put_node(state, replace(node, check_index=decision.check_index))


def node_checked(state: State, event: NodeChecked) -> State:
    """Let the next round quarantine a node found sick, or release one found healthy; old reports change nothing."""
    node = state.nodes.get(event.node_id)
    if node is None or node.check_index != event.check_index:
        return state
    if event.healthy:
        state = put_node(state, counted(state, replace(node, check_index=None, sick="", broken_gpus=())))
        return set_timer(state, "quarantine", node.node_id, state.now_us)
    reason = f"a check found it sick: {event.report}"[:MAX_REASON_CHARACTERS]
    return trouble(put_node(state, replace(node, check_index=None, sick=reason)), node.node_id)


def node_quarantined(state: State, decision: NodeQuarantined) -> State:
    """Let nothing start on the node for a while, or until an operator says so."""
    node = state.nodes[decision.node_id]
    node = replace(
        node,
        quarantined=True,
        quarantined_until_us=decision.until_us,
        quarantine_reason=decision.reason,
        sick="",
        faults=(),
    )
    state = put_node(state, node)
    if decision.until_us is None:
        return clear_timer(state, "quarantine", node.node_id)
    return set_timer(state, "quarantine", node.node_id, decision.until_us)


def node_released(state: State, decision: NodeReleased) -> State:
    """Let things start on the node again, but for the devices that are known to be broken: time mends nothing."""
    return _released(state, decision.node_id, state.nodes[decision.node_id].broken_gpus)


def mended(state: State, node_id: str) -> State:
    """Return the state with nothing held against a node any more."""
    return _released(state, node_id, ())


def _released(state: State, node_id: str, broken_gpus: tuple[int, ...]) -> State:
    node = state.nodes[node_id]
    node = replace(
        node,
        quarantined=False,
        quarantined_until_us=None,
        quarantine_reason="",
        sick="",
        faults=(),
        broken_gpus=broken_gpus,
    )
    return put_node(clear_timer(state, "quarantine", node_id), counted(state, node), placement_due=True)


def note_fault(state: State, node_id: str, reason: str, job_id: str = "") -> State:
    """Remember a fault against a node; a job's launches count once, for all of them may be its own doing."""
    node = state.nodes.get(node_id)
    if node is None or (job_id and any(fault.job_id == job_id for fault in node.faults)):
        return state
    fault = Fault(at_us=state.now_us, reason=reason[:MAX_REASON_CHARACTERS], job_id=job_id)
    return trouble(put_node(state, replace(node, faults=(*node.faults, fault)[-MAX_FAULTS:])), node_id)


def lose_ranks(state: State, node_id: str, reason: str, *, lost: bool = False, gpu: int | None = None) -> State:
    """Fail the attempts with ranks on a node, or on one of its GPUs; where it is lost they do not wait for it."""
    for job_id in state.nodes[node_id].held:
        job = state.jobs[job_id]
        attempt = job.attempt
        if attempt is None or not _runs_on(attempt, node_id, gpu):
            continue
        if lost:
            attempt = replace(
                attempt,
                status=tuple(
                    replace(status, lost=True) if share.node_id == node_id and not status.gone else status
                    for share, status in zip(attempt.bound.shares, attempt.status, strict=True)
                ),
            )
        failing = not attempt.is_stopping or (attempt.stop is not None and attempt.stop.reason == "rank_failed")
        if attempt.retryable and failing:
            # That the hardware failed says more than how a rank died of it.
            attempt = replace(attempt, failure=reason, blame="node")
        touched = state.touched.set(job_id, True)  # noqa: FBT003 - a map used as a set
        state = put_job(state, replace(job, attempt=attempt), touched=touched)
    return state


def _runs_on(attempt: Attempt, node_id: str, gpu: int | None) -> bool:
    return any(
        share.node_id == node_id and not status.gone and (gpu is None or gpu in share.gpus)
        for share, status in zip(attempt.bound.shares, attempt.status, strict=True)
    )


def trouble(state: State, node_id: str) -> State:
    """Return the state in which the next round looks at this node."""
    return replace(state, troubled=state.troubled.set(node_id, True))  # noqa: FBT003 - a map used as a set
