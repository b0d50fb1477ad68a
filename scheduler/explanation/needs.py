"""What a job needs of the cluster, and how near the cluster comes to it."""

from collections.abc import Sequence

from gangline.events.types import WHOLE_MILLI, JobSpec
from gangline.scheduler.explanation.nodes import NodeReasons
from gangline.scheduler.explanation.question import Question
from gangline.scheduler.explanation.words import count
from gangline.scheduler.state import Node


def need(question: Question, reasons: NodeReasons) -> str:
    """Return what the job needs, and what there is of it among the nodes that it may use."""
    spec = question.spec
    fleet = [node for node in question.fleet if question.takes(node)]
    usable = [node for node in fleet if not _is_out(reasons, node)]
    widest = question.widest()
    if spec.gpu_milli < WHOLE_MILLI and spec.gpus:
        return _fraction(spec, usable)
    if spec.nodes is not None and spec.nodes > 1:
        each = spec.gpus // spec.nodes
        parts = f"{spec.nodes} nodes of one type{_within(spec)} with {each} free GPUs each"
        return f"it needs {parts}; {_ready(question, reasons)}"
    if spec.nodes == 1 or spec.gpus <= widest:
        return _on_one_node(spec, usable)
    if not widest:
        return f"it needs {spec.gpus} GPUs, and no node has any"
    whole, remainder = divmod(spec.gpus, widest)
    more = f" and one more with {remainder} free GPUs" if remainder else ""
    return (
        f"it needs {whole} wholly free nodes of {widest} GPUs of one type{_within(spec)}{more}; "
        f"{_ready(question, reasons)}"
    )


OUT = ("lost", "quarantined", "draining", "cordoned", "stale", "quota", "reserved", "spare", "failed", "held")


def _is_out(reasons: NodeReasons, node: Node) -> bool:
    """Whether a node would not take it, however much is free there."""
    return any(reason.kind in OUT for reason in reasons.of(node))


def _fraction(spec: JobSpec, usable: Sequence[Node]) -> str:
    needed = f"it needs {spec.gpu_milli} thousandths of one GPU"
    if not usable:
        return needed
    freest = max(usable, key=lambda node: max(node.free_milli, default=0))
    free = max(freest.free_milli, default=0)
    have = f"{freest.node_id}, the freest node, has {free} of one"
    return f"{needed}; {have}{_fed(freest, spec, 1, enough=free >= spec.gpu_milli)}"


def _on_one_node(spec: JobSpec, usable: Sequence[Node]) -> str:
    needed = (
        f"it needs {count(spec.gpus, 'free GPU')} on one node" if spec.gpus else "it needs CPU and memory on one node"
    )
    if not usable:
        return needed
    freest = max(usable, key=lambda node: (node.whole_free, node.cpu_free_milli, node.memory_free_bytes))
    have = f"{freest.node_id}, the freest node, has {freest.whole_free}"
    enough = freest.whole_free >= spec.gpus
    return f"{needed}; {have}{_fed(freest, spec, max(spec.gpus, 1), enough=enough)}"


def _fed(node: Node, spec: JobSpec, ranks: int, *, enough: bool) -> str:
    """Return what a node with GPUs enough lacks."""
    cpu, memory = spec.cpu_milli * ranks, spec.memory_bytes * ranks
    if not enough or (node.cpu_free_milli >= cpu and node.memory_free_bytes >= memory):
        return ""
    return (
        f", but {node.cpu_free_milli}m CPU and {node.memory_free_bytes:,} bytes of memory free, "
        f"where the gang asks for {cpu}m and {memory:,} bytes"
    )


def _within(spec: JobSpec) -> str:
    return " in one pod" if spec.topology_required == "pod" else ""


def _ready(question: Question, reasons: NodeReasons) -> str:
    """Return of which type the most nodes could hold a part of it, and how many; of one pod, too, if that is asked."""
    by_type: dict[str, int] = {}
    by_pod: dict[tuple[str, str], int] = {}
    for node in question.fleet:
        if question.takes(node):
            free = int(not reasons.of(node))
            by_type[node.gpu_type] = by_type.get(node.gpu_type, 0) + free
            key = (node.gpu_type, node.pod)
            by_pod[key] = by_pod.get(key, 0) + free
    # The most; of equals the first type.
    number, gpu_type = min((-found, gpu_type) for gpu_type, found in sorted(by_type.items()))
    text = f"{-number} of type {gpu_type} are ready for it"
    if question.spec.topology_required != "pod":
        return text
    most, (_, pod) = min((-found, key) for key, found in sorted(by_pod.items()))
    return f"{text}, at most {-most} of them in one pod ({pod})" if most else text
