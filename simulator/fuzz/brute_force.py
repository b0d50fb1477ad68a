"""Whether a gang fits, by trying every set of nodes: for clusters so small that this takes no time.

From the specification: a gang of at most a node's GPUs takes one node; a larger one wholly free nodes of one size, and
the remainder on another node, unless the spec gives a number of nodes; all of one type; within a pod where that is
required; with the CPU and memory of its ranks.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from gangline.events.types import WHOLE_MILLI, JobSpec
from gangline.simulator.fuzz.ledger import Ledger

MOST_GPUS = 16
"""Of a cluster on which every set of nodes and of victims is tried."""


def is_small_world(ledger: Ledger) -> bool:
    """Whether the cluster is small enough."""
    return sum(len(node.has.gpus) for node in ledger.nodes.values()) <= MOST_GPUS


class Free(NamedTuple):
    """What is free of a node."""

    node_id: str
    pod: str
    gpu_type: str
    size: int
    """Devices that it has."""
    milli: Mapping[int, int]
    """By device."""
    cpu_milli: int
    memory_bytes: int

    def whole(self) -> int:
        """How many devices are wholly free."""
        return sum(milli >= WHOLE_MILLI for milli in self.milli.values())

    def holds(self, spec: JobSpec, gpus: int) -> bool:
        """Whether so many ranks with a whole device each find room here, or one rank without."""
        return self.whole() >= gpus and self.feeds(spec, max(gpus, 1))

    def feeds(self, spec: JobSpec, ranks: int) -> bool:
        """Whether there are CPU and memory for so many ranks; who asks for none needs none."""
        return (not spec.cpu_milli or self.cpu_milli >= spec.cpu_milli * ranks) and (
            not spec.memory_bytes or self.memory_bytes >= spec.memory_bytes * ranks
        )


def free_nodes(ledger: Ledger, *, gone: Collection[str] = (), held_for: str = "") -> list[Free]:
    """Return what is free of each node on which something may start, if some jobs were gone.

    What is held is not free but for whom it is held, and what is taken and held is counted twice: at most too little.
    """
    held_for = held_for if held_for in ledger.room else ""
    key = ("free", frozenset(gone), held_for)
    if key not in ledger.memo:
        ledger.memo[key] = _free_nodes(ledger, gone, held_for)
    found: list[Free] = ledger.memo[key]
    return found


def _free_nodes(ledger: Ledger, gone: Collection[str], held_for: str) -> list[Free]:
    found = []
    for node_id, node in sorted(ledger.nodes.items()):
        held = ledger.on_node(node_id)
        unknown = any(ledger.jobs[one.job_id].ended is not None for one in held) or any(
            (live := ledger.jobs[one.job_id].live) is None or live.attempt != one.attempt for one in held
        )
        if node.cordoned or node.draining or node.lost or node.quarantined or unknown:
            continue
        shares = [one.share for one in held if one.job_id not in gone]
        shares += [
            share
            for job_id, room in ledger.room.items()
            if job_id != held_for
            for share in room.shares
            if share.node_id == node_id
        ]
        milli = {
            gpu.index: 0
            if gpu.index in node.broken
            else WHOLE_MILLI - sum(share.gpu_milli for share in shares if gpu.index in share.gpus)
            for gpu in node.has.gpus
        }
        found.append(
            Free(
                node_id,
                node.has.pod,
                node.has.gpu_type,
                len(node.has.gpus),
                milli,
                node.has.cpu_milli - sum(share.cpu_milli for share in shares),
                node.has.memory_bytes - sum(share.memory_bytes for share in shares),
            )
        )
    return found


def widest_of(ledger: Ledger, spec: JobSpec) -> int:
    """Return the most devices of a node of a type that a job accepts."""
    sizes = [
        len(node.has.gpus)
        for node in ledger.nodes.values()
        if not spec.gpu_types or node.has.gpu_type in spec.gpu_types
    ]
    return max(sizes, default=0)


def is_small(ledger: Ledger, spec: JobSpec) -> bool:
    """Whether a gang takes one node."""
    return spec.nodes == 1 if spec.nodes is not None else spec.gpus <= widest_of(ledger, spec)


def fits(ledger: Ledger, spec: JobSpec, nodes: Sequence[Free]) -> bool:
    """Whether there is any placement on these nodes; roles are left out."""
    return next(placements(ledger, spec, nodes), None) is not None


def placements(ledger: Ledger, spec: JobSpec, nodes: Sequence[Free]) -> Iterator[tuple[str, ...]]:
    """Yield the nodes of every placement."""
    nodes = [node for node in nodes if not spec.gpu_types or node.gpu_type in spec.gpu_types]
    if spec.gpu_milli < WHOLE_MILLI and spec.gpus:
        for node in nodes:
            if max(node.milli.values(), default=0) >= spec.gpu_milli and node.feeds(spec, 1):
                yield (node.node_id,)
    elif is_small(ledger, spec):
        for node in nodes:
            if node.holds(spec, spec.gpus):
                yield (node.node_id,)
    elif spec.topology_required != "node":
        yield from _on_several(spec, nodes)


def _on_several(spec: JobSpec, nodes: Sequence[Free]) -> Iterator[tuple[str, ...]]:
    for gpu_type in sorted({node.gpu_type for node in nodes}):
        of_type = [node for node in nodes if node.gpu_type == gpu_type]
        if spec.nodes is not None:
            each = spec.gpus // spec.nodes
            for chosen in combinations([node for node in of_type if node.holds(spec, each)], spec.nodes):
                if _near(spec, chosen):
                    yield tuple(node.node_id for node in chosen)
            continue
        for size in sorted({node.size for node in of_type if node.size}):
            count, rest = divmod(spec.gpus, size)
            whole = [node for node in of_type if node.size == size and node.holds(spec, size)]
            for chosen in combinations(whole, count) if count else ():
                last = [(node,) for node in of_type if node not in chosen and node.holds(spec, rest)] if rest else [()]
                for more in last:
                    if _near(spec, (*chosen, *more)):
                        yield tuple(node.node_id for node in (*chosen, *more))


def _near(spec: JobSpec, nodes: Sequence[Free]) -> bool:
    return spec.topology_required != "pod" or len({node.pod for node in nodes}) == 1
