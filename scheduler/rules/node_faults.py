"""Nodes that fail again and again are quarantined for a while, those found sick until an operator says so."""

from gangline.events.decisions import NodeCheckOrdered, NodeQuarantined, NodeReleased
from gangline.events.policy import Policy
from gangline.events.types import HOUR_US, MILLION
from gangline.scheduler.round import Round
from gangline.scheduler.state import Fault, Node, State
from gangline.scheduler.timers import due

RULE = "node_faults"


def decide(round_: Round) -> None:
    """Release the nodes whose time is over, and quarantine those that have failed too often since."""
    for node_id in due(round_.state, "quarantine"):
        if not round_.emit(NodeReleased(node_id=node_id)):
            return
    for node_id in sorted(round_.state.troubled):
        node = round_.state.nodes[node_id]
        if node.check_index is not None and not round_.emit(
            NodeCheckOrdered(node_id=node_id, check_index=node.check_index)
        ):
            return
        quarantine = _quarantine(round_.state, round_.policy, node)
        if quarantine is not None and not round_.emit(quarantine):
            return


def _quarantine(state: State, policy: Policy | None, node: Node) -> NodeQuarantined | None:
    """Return the quarantine of a node; one known to be sick needs no rule that counts faults."""
    if node.sick:
        return NodeQuarantined(node_id=node.node_id, until_us=None, reason=node.sick)
    if policy is None or RULE not in policy.rules or node.quarantined or policy.quarantine_faults <= 0:
        return None
    counted = [fault for fault in node.faults if fault.at_us + policy.quarantine_window_us > state.now_us]
    if len(counted) < policy.quarantine_faults or not may_quarantine(state, policy):
        return None
    return NodeQuarantined(
        node_id=node.node_id, until_us=state.now_us + policy.quarantine_us, reason=_reason(policy, counted)
    )


def may_quarantine(state: State, policy: Policy) -> bool:
    """Whether one more node may be taken out for what it did: many at a time are not many sick nodes."""
    out = sum(state.nodes[node_id].quarantined for node_id in state.node_order)
    return out < max(1, len(state.node_order) * policy.quarantined_max_ppm // MILLION)


def _reason(policy: Policy, counted: list[Fault]) -> str:
    hours = policy.quarantine_window_us // HOUR_US
    return f"{len(counted)} faults within {hours} h, the last: {counted[-1].reason}"
