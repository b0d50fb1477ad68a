"""Why each node does not take a job: what it is short of, what is wrong with it, and for whom it is kept."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gangline.events.types import WHOLE_MILLI, Share
from gangline.scheduler.explanation.question import Question
from gangline.scheduler.explanation.values import NodeCount, NodeReason
from gangline.scheduler.explanation.words import named, span
from gangline.scheduler.fit import Ask
from gangline.scheduler.reservations import expected_end_us
from gangline.scheduler.rules.placement import failed_nodes, is_let_in
from gangline.scheduler.shapes import is_gang
from gangline.scheduler.spares import spare_nodes
from gangline.scheduler.state import Node
from gangline.scheduler.views.uses import quota_is_on


class NodeReasons:
    """Answers for one job, node by node."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._widest = question.widest()
        self._held = _holds_by_node(question)
        self._reserved = _reserved_by_node(question)
        self._spares = None if question.job.recovering else spare_nodes(question.policy, question.views)
        self._failed = failed_nodes(question.state, question.policy, question.views, question.job)
        self._barred_types = _barred_types(question)
        self._free = "could hold a part of it" if is_gang(question.spec, self._widest) else "could hold it"

    def of(self, node: Node) -> list[NodeReason]:
        """Return everything that keeps the job from a node, the weightiest first; nothing if it could hold it."""
        question = self._question
        found = _blocked(node, question.state.now_us)
        if not question.takes(node):
            wanted = " or ".join(question.shape.gpu_types)
            found.append(_reason("other_type", f"its GPUs are of type {node.gpu_type or 'none'}, not {wanted}"))
            return found
        if node.gpu_type in self._barred_types:
            text = f"quota lets queue '{question.job.spec.queue}' have no more GPUs of type {node.gpu_type}"
            found.append(_reason("quota", text))
        ask = question.of_one_node(self._widest, node)
        small = _too_small(node, ask)
        if small is not None:
            return [*found, small]
        full = _too_full(node, ask)
        if full is not None:
            found.append(full)
        elif node.node_id in self._held and _too_full(_left(node, self._held[node.node_id]), ask) is not None:
            claimants = sorted(self._held[node.node_id])
            found.append(_reason("held", f"what is free of it is held for {named(claimants)}"))
        for_whom = self._reserved.get(node.node_id)
        if for_whom is not None:
            found.append(_reason("reserved", f"it is reserved for {for_whom}"))
        row = question.views.nodes.fleet.row[node.node_id]
        if self._spares is not None and bool(self._spares[row]):
            found.append(_reason("spare", "it is kept as a spare, for recovery only"))
        if self._failed is not None and bool(self._failed[row]):
            found.append(_reason("failed", "it could not launch this job before, and others could hold it"))
        return found

    def counts(self) -> tuple[NodeCount, ...]:
        """Return how many nodes each thing keeps the job from, every node counted once, by what weighs most."""
        kinds: dict[tuple[str, str], int] = {}
        for node in self._question.fleet:
            found = self.of(node)
            key = (found[0].kind, self._group(node, found[0])) if found else ("free", self._free)
            kinds[key] = kinds.get(key, 0) + 1
        order = [kind for kind, _ in KINDS]
        ranked = sorted(kinds.items(), key=lambda one: (order.index(one[0][0]), -one[1], one[0][1]))
        return tuple(NodeCount(kind=kind, nodes=number, text=f"{number} {text}") for (kind, text), number in ranked)

    def _group(self, node: Node, reason: NodeReason) -> str:
        if reason.kind == "held":
            return f"held for {named(sorted(self._held[node.node_id]))}"
        if reason.kind == "reserved":
            return f"reserved for {self._reserved[node.node_id]}"
        return _TEXTS[reason.kind]


KINDS = (
    ("free", ""),
    ("too_full", "too full"),
    ("cpu", "without the CPU for it"),
    ("memory", "without the memory for it"),
    ("cordoned", "cordoned"),
    ("draining", "draining"),
    ("quarantined", "quarantined"),
    ("lost", "lost"),
    ("stale", "not known to be empty since lost"),
    ("held", ""),
    ("reserved", ""),
    ("spare", "kept as a spare"),
    ("failed", "that could not launch it before"),
    ("quota", "of a type of which quota allows no more"),
    ("too_small", "too small"),
    ("other_type", "of another GPU type"),
)
"""What may keep a job from a node, in the order in which a sentence counts them."""
_TEXTS: Mapping[str, str] = MappingProxyType(dict(KINDS))


def _reason(kind: str, text: str) -> NodeReason:
    return NodeReason(kind=kind, text=text)


def _blocked(node: Node, now_us: int) -> list[NodeReason]:
    found = []
    why = f" ({node.cordon_reason})" if node.cordon_reason else ""
    way_out = f"`gangline node uncordon {node.node_id}` lets it take jobs"
    if node.lost:
        found.append(_reason("lost", "it is lost: nothing is heard of its agent"))
    if node.quarantined:
        left = node.quarantined_until_us
        until = "until an operator says so" if left is None else f"for another {span(left - now_us)}"
        found.append(_reason("quarantined", f"it is quarantined {until} ({node.quarantine_reason}): {way_out}"))
    if node.draining:
        found.append(_reason("draining", f"an operator drains it{why}: {way_out}"))
    elif node.cordoned:
        found.append(_reason("cordoned", f"an operator has cordoned it{why}: {way_out}"))
    if node.stale:
        jobs = named(list(dict.fromkeys(one.job_id for one in node.stale)))
        found.append(_reason("stale", f"it was lost, and its agent has not yet reported {jobs} gone"))
    return found


def _too_small(node: Node, ask: Ask) -> NodeReason | None:
    """Return what it would lack even if nothing ran there."""
    usable = len(node.gpus) - len(node.broken_gpus)
    if usable < ask.gpus:
        broken = f", {len(node.broken_gpus)} of them broken" if node.broken_gpus else ""
        return _reason(
            "too_small", f"it has {len(node.gpus)} GPUs{broken}, and the job asks for {ask.gpus} of one node"
        )
    if ask.cpu_milli > node.cpu_milli:
        text = f"it has {node.cpu_milli}m CPU in all, and the job asks for {ask.cpu_milli}m of one node"
        return _reason("too_small", text)
    if ask.memory_bytes > node.memory_bytes:
        text = f"it has {node.memory_bytes:,} bytes of memory in all, and the job asks for {ask.memory_bytes:,} there"
        return _reason("too_small", text)
    return None


def _too_full(node: Node, ask: Ask) -> NodeReason | None:
    """Return what it lacks now, what is held for others not counted."""
    if ask.gpus and ask.gpu_milli < WHOLE_MILLI:
        free = max(node.free_milli, default=0)
        if free < ask.gpu_milli:
            text = f"its freest GPU has {free} thousandths free, and the job asks for {ask.gpu_milli}{_by(node)}"
            return _reason("too_full", text)
    elif node.whole_free < ask.gpus:
        text = f"{node.whole_free} of its {len(node.gpus)} GPUs are free, and the job asks for {ask.gpus}{_by(node)}"
        return _reason("too_full", text)
    if ask.cpu_milli and node.cpu_free_milli < ask.cpu_milli:
        text = f"{max(node.cpu_free_milli, 0)}m of its CPU are free, and the job asks for {ask.cpu_milli}m{_by(node)}"
        return _reason("cpu", text)
    if ask.memory_bytes and node.memory_free_bytes < ask.memory_bytes:
        free_bytes = max(node.memory_free_bytes, 0)
        text = f"{free_bytes:,} bytes of its memory are free, and the job asks for {ask.memory_bytes:,}{_by(node)}"
        return _reason("memory", text)
    return None


def _by(node: Node) -> str:
    return f" (running there: {named(node.held)})" if node.held else ""


def _left(node: Node, held: Mapping[str, Sequence[Share]]) -> Node:
    """Return the node without what is held there for others."""
    free = list(node.free_milli)
    cpu, memory = node.cpu_free_milli, node.memory_free_bytes
    for job_id in sorted(held):
        for share in held[job_id]:
            free = [
                max(milli - share.gpu_milli, 0) if gpu in share.gpus else milli
                for gpu, milli in zip(node.gpus, free, strict=True)
            ]
            cpu -= share.cpu_milli
            memory -= share.memory_bytes
    return replace(node, free_milli=tuple(free), cpu_free_milli=cpu, memory_free_bytes=memory)


def _holds_by_node(question: Question) -> Mapping[str, Mapping[str, Sequence[Share]]]:
    """Return by node what is held there for others."""
    found: dict[str, dict[str, list[Share]]] = {}
    for job_id, room in sorted(question.state.room.items()):
        if job_id != question.job.job_id:
            for share in room.shares:
                found.setdefault(share.node_id, {}).setdefault(job_id, []).append(share)
    return found


def _reserved_by_node(question: Question) -> Mapping[str, str]:
    """Return by node for whom it is reserved, and for how long, where this job would not leave in time."""
    state = question.state
    ends_us = expected_end_us(state, question.job)
    found: dict[str, str] = {}
    for job_id, reserved in sorted(state.reserved.items()):
        if job_id == question.job.job_id:
            continue
        if not is_let_in(state, question.policy, question.views, question.job, job_id, ends_us):
            left = f"until {span(reserved.free_at_us - state.now_us)} from now"
            for node_id in reserved.node_ids:
                found.setdefault(node_id, f"{job_id} {left}")
    return found


def _barred_types(question: Question) -> Mapping[str, bool]:
    """Return the types of which quota allows no more."""
    uses, spec, milli = question.views.uses, question.job.spec, question.shape.milli
    if not quota_is_on(question.policy) or not milli:
        return {}
    return {
        gpu_type: True
        for gpu_type in uses.tree.types
        if not uses.allows(spec.queue, gpu_type, milli, preemptible=spec.preemptible)
    }
