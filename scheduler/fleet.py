"""The nodes as arrays of integers, one row a node in natural order of their ids: what every search for room reads.

It follows from the state's nodes and is no part of it. Its owner keeps it up to date, node by node.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.order import natural
from gangline.scheduler.state import Node
from gangline.scheduler.worth import LINEAR

MOST = 1 << 52
"""More CPU or memory counts as this, so that a thousand times as much is still a number of 64 bits."""

Ints = NDArray[np.int64]
Milli = NDArray[np.int32]
Flags = NDArray[np.bool_]


_AS_MUCH: Ints = np.arange(WHOLE_MILLI + 1, dtype=np.int64)
_AS_MUCH_BY_ONE = tuple(range(WHOLE_MILLI + 1))


def _by_milli(by_hundredth: Sequence[int]) -> tuple[Ints, Sequence[int]]:
    """Return by thousandths, as an array and one by one, what is given in steps of a hundredth."""
    by_milli: Ints = np.repeat(np.array(by_hundredth, np.int64), WHOLE_MILLI // 100)[: WHOLE_MILLI + 1]
    return by_milli, tuple(by_milli.tolist())


_LINEAR = _by_milli(LINEAR)
"""Of fleets before anything has arrived, and of many new ones."""


class Fleet:
    """The nodes' free shares, CPU and memory, and where they are.

    The arrays are for reading; rows change through the methods only, which keep those that follow from others right.
    A column of `free` is a place in the node's `gpus`, which need not be the device's index.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Take the nodes, which are in natural order of their ids."""
        self.size = len(nodes)
        self.node_ids = tuple(node.node_id for node in nodes)
        self.row = {node_id: row for row, node_id in enumerate(self.node_ids)}
        self.types = tuple(sorted({node.gpu_type for node in nodes}))
        self.pods = tuple(sorted({node.pod for node in nodes}, key=natural))
        self.widest = max((len(node.gpus) for node in nodes), default=0)
        """The most devices of a node, and so the columns of `free`."""
        self.free: Milli = np.zeros((self.size, self.widest), np.int32)
        """Free thousandths of each device; 0 where a node has fewer."""
        self.devices: Ints = np.zeros(self.size, np.int64)
        self.whole_free: Ints = np.zeros(self.size, np.int64)
        self.node_sizes: tuple[int, ...] = ()
        """How many devices nodes have, each number once."""
        self.cpu_free: Ints = np.zeros(self.size, np.int64)
        """Thousandths of a CPU; below 0 where a node came back with less than what runs there."""
        self.memory_free: Ints = np.zeros(self.size, np.int64)
        """Bytes, below 0 likewise."""
        self.type_index: Ints = np.zeros(self.size, np.int64)
        """Into `types`."""
        self.pod_index: Ints = np.zeros(self.size, np.int64)
        """Into `pods`."""
        self.blocked: Flags = np.zeros(self.size, np.bool_)
        """Whether nothing may start there."""
        self.worth_of_free: Ints = _AS_MUCH
        """What a device with so many thousandths free is worth, in thousandths of a free one."""
        self._worth: Sequence[int] = _AS_MUCH_BY_ONE
        self._learnt: Sequence[int] | None = None
        self.gpu_worth: Ints = np.zeros(self.size, np.int64)
        """The sum of that over a node's devices."""
        types = {name: place for place, name in enumerate(self.types)}
        pods = {name: place for place, name in enumerate(self.pods)}
        for row, node in enumerate(nodes):
            self.type_index[row] = types[node.gpu_type]
            self.pod_index[row] = pods[node.pod]
            self.set_node(row, node)

    def set_node(self, row: int, node: Node) -> None:
        """Take over what a node has free. One of another type or pod, or with more devices, needs a new fleet."""
        missing = self.widest - len(node.free_milli)
        self.free[row] = node.free_milli if not missing else (*node.free_milli, *(0,) * missing)
        if self.devices[row] != len(node.gpus):
            self.devices[row] = len(node.gpus)
            self.node_sizes = tuple(int(size) for size in np.unique(self.devices) if size)
        self.cpu_free[row] = max(-MOST, min(node.cpu_free_milli, MOST))
        self.memory_free[row] = max(-MOST, min(node.memory_free_bytes, MOST))
        self._follow(row)

    def take(self, row: int, columns: Sequence[int], milli: int, cpu_milli: int, memory_bytes: int) -> None:
        """Take so many thousandths of each of these devices, and CPU and memory in all; negative ones give back."""
        for column in columns:
            self.free[row, column] -= milli
        self.cpu_free[row] -= cpu_milli
        self.memory_free[row] -= memory_bytes
        self._follow(row)

    def set_blocked(self, row: int, *, blocked: bool) -> None:
        """Let nothing start on a node, or let it again."""
        self.blocked[row] = blocked

    def set_worth(self, worth_of_free: Sequence[int]) -> None:
        """Take over what a device is worth, by its free share in steps of a hundredth (101 values)."""
        if worth_of_free is self._learnt:
            return
        self._learnt = worth_of_free
        self.worth_of_free, self._worth = _LINEAR if worth_of_free == LINEAR else _by_milli(worth_of_free)
        self.gpu_worth = self.worth_of_free[self.free].sum(axis=1)

    def types_mask(self, gpu_types: Sequence[str]) -> Flags | None:
        """Return which nodes have one of these types, or None for all if none is named."""
        if not gpu_types:
            return None
        wanted = np.array([name in gpu_types for name in self.types], np.bool_)
        return wanted[self.type_index]

    def widest_of(self, gpu_types: Sequence[str]) -> int:
        """Return the most devices of a node that has one of these types, or of any node if none is named."""
        mask = self.types_mask(gpu_types)
        return self.widest if mask is None else int(self.devices[mask].max(initial=0))

    def free_by_type(self) -> list[tuple[str, int]]:
        """Return the free thousandths of GPUs of each type."""
        free = np.zeros(len(self.types), np.int64)
        np.add.at(free, self.type_index, self.free.sum(axis=1, dtype=np.int64))
        return list(zip(self.types, free.tolist(), strict=True))

    def copy(self) -> Self:
        """Return another fleet with the same rows, to try on it what may be dropped."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in ("free", "devices", "whole_free", "cpu_free", "memory_free", "blocked", "gpu_worth"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def _follow(self, row: int) -> None:
        """Bring up to date what follows from the free shares of a node."""
        # Over the few devices of one node lists are several times as fast as arrays.
        free = self.free[row].tolist()
        self.whole_free[row] = free.count(WHOLE_MILLI)
        worth = self._worth
        self.gpu_worth[row] = sum([worth[milli] for milli in free])
