"""Where a gang goes: all or nothing, and so that whole nodes and whole pods stay free for those who need them.

A gang of at most a node's GPUs takes one node: of those partly used the one with the fewest free GPUs that suffice,
else a whole one. A larger gang takes whole free nodes of one kind, and the remainder on the lowest other node that has
it, in one of the same pods if it can. Whole nodes come from the fullest pod that holds them, else from the fewest pods.
A fraction goes to the fullest device that fits. Ties go to the lowest id in natural order. Nodes of one placement have
one GPU type.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events.types import JobSpec, Share
from gangline.scheduler.order import natural
from gangline.scheduler.state import Node

WHOLE_MILLI = 1000

Part = tuple[Node, tuple[int, ...]]
"""A node, and the devices taken there."""


Shape = tuple[object, ...]


def shape_of(spec: JobSpec) -> Shape:
    """Return all of a spec that placement depends on."""
    return (spec.gpus, spec.gpu_milli, spec.nodes, spec.gpu_types, spec.cpu_milli, spec.memory_bytes)


def emptied(node: Node) -> Node:
    """Return the node as if nothing ran there."""
    return replace(
        node,
        free_milli=(WHOLE_MILLI,) * len(node.gpus),
        cpu_free_milli=node.cpu_milli,
        memory_free_bytes=node.memory_bytes,
    )


def place(fleet: Sequence[Node], spec: JobSpec) -> tuple[Share, ...] | None:
    """Return the shares of a gang in rank order, or None if it does not fit. `fleet` is in natural order."""
    allowed = [node for node in fleet if node.gpu_type in spec.gpu_types] if spec.gpu_types else fleet
    if spec.gpu_milli < WHOLE_MILLI:
        parts = _place_fraction(allowed, spec)
    elif spec.nodes is not None and spec.nodes > 1:
        parts = _place_spread(allowed, spec, spec.nodes)
    elif spec.nodes == 1 or spec.gpus <= max((len(node.gpus) for node in allowed), default=0):
        parts = _place_small(allowed, spec, spec.gpus)
    else:
        parts = _place_large(allowed, spec)
    return _shares(parts, spec) if parts else None


def _shares(parts: Sequence[Part], spec: JobSpec) -> tuple[Share, ...]:
    shares = []
    rank = 0
    for node, gpus in parts:
        shares.append(
            Share(
                node_id=node.node_id,
                address=node.address,
                gpus=gpus,
                gpu_milli=spec.gpu_milli,
                cpu_milli=spec.cpu_milli * len(gpus),
                memory_bytes=spec.memory_bytes * len(gpus),
                first_rank=rank,
            )
        )
        rank += len(gpus)
    return tuple(shares)


def holds(node: Node, spec: JobSpec, gpus: int) -> bool:
    """Whether a node has so many wholly free devices, and the CPU and memory of as many ranks."""
    return node.whole_free >= gpus and _feeds(node, spec, gpus)


def _feeds(node: Node, spec: JobSpec, ranks: int) -> bool:
    """Whether a node has the CPU and memory of so many ranks; who asks for none may go where none is left."""
    return (not spec.cpu_milli or node.cpu_free_milli >= spec.cpu_milli * ranks) and (
        not spec.memory_bytes or node.memory_free_bytes >= spec.memory_bytes * ranks
    )


def _lowest_gpus(node: Node, gpus: int) -> tuple[int, ...]:
    free = sorted(gpu for gpu, milli in zip(node.gpus, node.free_milli, strict=True) if milli == WHOLE_MILLI)
    return tuple(free[:gpus])


def _place_fraction(allowed: Sequence[Node], spec: JobSpec) -> list[Part]:
    best: tuple[tuple[int, int, int, int], Part] | None = None
    for order, node in enumerate(allowed):
        if not _feeds(node, spec, 1):
            continue
        for gpu, free in zip(node.gpus, node.free_milli, strict=True):
            key = (free, node.whole_free, order, gpu)
            if spec.gpu_milli <= free < WHOLE_MILLI and (best is None or key < best[0]):
                best = (key, (node, (gpu,)))
    return _place_small(allowed, spec, 1) if best is None else [best[1]]


def _place_small(allowed: Sequence[Node], spec: JobSpec, gpus: int) -> list[Part]:
    fits = [node for node in allowed if holds(node, spec, gpus)]
    if not fits:
        return []
    partly_used = [node for node in fits if node.whole_free < len(node.gpus)]
    if partly_used:
        # min takes the first of equals, and they are in natural order.
        node = min(partly_used, key=lambda node: node.whole_free)
    else:
        size = min(len(node.gpus) for node in fits)
        (node,) = _choose([node for node in fits if len(node.gpus) == size], 1)
    return [(node, _lowest_gpus(node, gpus))]


def _place_spread(allowed: Sequence[Node], spec: JobSpec, nodes: int) -> list[Part]:
    each = spec.gpus // nodes
    for gpu_type in sorted({node.gpu_type for node in allowed}):
        fits = [node for node in allowed if node.gpu_type == gpu_type and holds(node, spec, each)]
        chosen = _choose(fits, nodes)
        if chosen:
            return [(node, _lowest_gpus(node, each)) for node in chosen]
    return []


def _place_large(allowed: Sequence[Node], spec: JobSpec) -> list[Part]:
    kinds = sorted({(-len(node.gpus), node.gpu_type) for node in allowed if node.gpus})
    for negative_size, gpu_type in kinds:
        size = -negative_size
        whole, remainder = divmod(spec.gpus, size)
        same_type = [node for node in allowed if node.gpu_type == gpu_type]
        free = [node for node in same_type if len(node.gpus) == size and holds(node, spec, size)]
        chosen = _choose(free, whole)
        if not chosen:
            continue
        parts: list[Part] = [(node, _lowest_gpus(node, size)) for node in chosen]
        if not remainder:
            return parts
        taken = sorted(node.node_id for node in chosen)
        pods = sorted({node.pod for node in chosen})
        others = [node for node in same_type if node.node_id not in taken and holds(node, spec, remainder)]
        if others:
            last = min(others, key=lambda node: node.pod not in pods)
            return [*parts, (last, _lowest_gpus(last, remainder))]
    return []


def _choose(fits: Sequence[Node], count: int) -> list[Node]:
    """Return `count` of the nodes from the fullest pod that holds them, else from the fewest pods; [] if too few.

    They come pod by pod, so that neighbouring ranks are near each other.
    """
    if count <= 0 or len(fits) < count:
        return []
    pods: dict[str, list[Node]] = {}
    for node in fits:
        pods.setdefault(node.pod, []).append(node)
    chosen: list[Node] = []
    left = sorted(pods, key=natural)
    while len(chosen) < count:
        need = count - len(chosen)
        holding = [pod for pod in left if len(pods[pod]) >= need]
        # The fullest pod is the one with the fewest candidates left that still suffice; else the emptiest one, so that
        # the fewest pods are touched.
        pod = min(holding or left, key=lambda pod: len(pods[pod]) if holding else -len(pods[pod]))
        left.remove(pod)
        chosen += sorted(pods[pod], key=lambda node: node.whole_free)[:need]
    return sorted(chosen, key=lambda node: (natural(node.pod), natural(node.node_id)))
