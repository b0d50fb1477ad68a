"""The fleet as arrays, with what is held for claimants taken off, and with what is reserved."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from gangline.events.decisions import RoomHeld, WorthLearnt
from gangline.events.types import WHOLE_MILLI, Share
from gangline.scheduler.fit import Fit
from gangline.scheduler.fleet import Fleet, Ints
from gangline.scheduler.placement import place_parts
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import Node, State
from gangline.scheduler.worth import UNLEARNT

MAX_SHAPES = 10_000
"""Shapes of which is remembered whether they could ever start; one takes about 300 bytes."""


class NodesView:
    """What is free for whoever has nothing held for him. `freed` lists the rows with more free than before."""

    def __init__(self) -> None:
        self.fleet = Fleet(())
        self.fit = Fit(self.fleet, UNLEARNT)
        self.empty = Fit(Fleet(()), UNLEARNT)
        """The same nodes as if nothing ran there and none was blocked."""
        self.freed: list[int] = []
        self.reserved: dict[str, Ints] = {}
        """Rows that wait for a gang, by its job id."""
        self._could_hold: dict[Shape, bool] = {}
        """Whether a shape would fit on the nodes as they registered."""
        self._holds: dict[str, RoomHeld] = {}
        self._holds_on: dict[str, dict[str, list[Share]]] = {}
        self._worth: WorthLearnt | None = None

    def rebuild(self, state: State) -> None:
        """Take everything from the state."""
        self._holds, self._holds_on, self._could_hold = {}, {}, {}
        for job_id, room in sorted(state.room.items()):
            self._hold(job_id, room)
        nodes = [state.nodes[node_id] for node_id in state.node_order]
        self.fleet = Fleet([self._left(node) for node in nodes])
        self._worth = worth_of(state)
        self.fit = Fit(self.fleet, self._worth)
        self.empty = Fit(Fleet([emptied(node) for node in nodes]), UNLEARNT)
        for row, node in enumerate(nodes):
            if node.is_blocked:
                self.fleet.set_blocked(row, blocked=True)
        self.freed = list(range(self.fleet.size))
        self._reserve(state)

    def could_hold(self, shape: Shape) -> bool:
        """Whether a shape would fit if nothing else ran."""
        if shape not in self._could_hold:
            if len(self._could_hold) >= MAX_SHAPES:
                self._could_hold.clear()
            self._could_hold[shape] = bool(place_parts(self.empty, shape))
        return self._could_hold[shape]

    def knows(self, state: State, changes: Sequence[tuple[str, str]]) -> bool:
        """Whether rows can follow the changes: no node is new, or of another shape."""
        for what, key in changes:
            if what != "node":
                continue
            row = self.fleet.row.get(key)
            node = state.nodes[key]
            if row is None or len(node.gpus) != int(self.fleet.devices[row]):
                return False
            if self.fleet.types[self.fleet.type_index[row]] != node.gpu_type:
                return False
            if self.fleet.pods[self.fleet.pod_index[row]] != node.pod:
                return False
            if (
                self.empty.fleet.cpu_free[row] != node.cpu_milli
                or self.empty.fleet.memory_free[row] != node.memory_bytes
            ):
                return False
        return True

    def follow(self, state: State, what: str, key: str) -> None:
        """Follow one change."""
        if what == "node":
            self._refresh(state, key)
        elif what == "room":
            before = self._holds.pop(key, None)
            touched = [share.node_id for share in before.shares] if before is not None else []
            for node_id in touched:
                self._holds_on[node_id].pop(key, None)
            room = state.room.get(key)
            if room is not None:
                self._hold(key, room)
                touched += [share.node_id for share in room.shares]
            for node_id in dict.fromkeys(touched):
                self._refresh(state, node_id)
        elif what == "reserved":
            self._reserve(state)

    def lend(self, state: State, job_id: str) -> None:
        """Leave free what is held for a job, until `take_back`; the state must not change meanwhile."""
        freed = len(self.freed)
        room = self._holds.get(job_id)
        for node_id in _nodes_of(room):
            self._holds_on[node_id].pop(job_id, None)
            self._refresh(state, node_id)
        del self.freed[freed:]

    def take_back(self, state: State, job_id: str) -> None:
        """Take off again what is held for a job."""
        freed = len(self.freed)
        room = self._holds.get(job_id)
        if room is not None:
            self._hold(job_id, room)
        for node_id in _nodes_of(room):
            self._refresh(state, node_id)
        del self.freed[freed:]

    def learn(self, state: State) -> None:
        """Follow what holes are worth; to learn it changes no job and no node."""
        worth = worth_of(state)
        if worth is not self._worth:
            self._worth = worth
            self.fit.learn(worth)

    def _refresh(self, state: State, node_id: str) -> None:
        row = self.fleet.row.get(node_id)
        if row is None:
            return
        node = state.nodes[node_id]
        fleet = self.fleet
        free, cpu, memory = fleet.free[row].tolist(), int(fleet.cpu_free[row]), int(fleet.memory_free[row])
        fleet.set_node(row, self._left(node))
        if bool(fleet.blocked[row]) != node.is_blocked:
            fleet.set_blocked(row, blocked=node.is_blocked)
            self.freed.append(row)
        elif (
            cpu < fleet.cpu_free[row]
            or memory < fleet.memory_free[row]
            or any(after > before for after, before in zip(fleet.free[row].tolist(), free, strict=True))
        ):
            self.freed.append(row)

    def _left(self, node: Node) -> Node:
        """Return the node with what is held there taken off."""
        holds = self._holds_on.get(node.node_id)
        if not holds:
            return node
        free = dict(zip(node.gpus, node.free_milli, strict=True))
        cpu, memory = node.cpu_free_milli, node.memory_free_bytes
        for job_id in sorted(holds):
            for share in holds[job_id]:
                for gpu in share.gpus:
                    free[gpu] = max(free.get(gpu, 0) - share.gpu_milli, 0)
                cpu -= share.cpu_milli
                memory -= share.memory_bytes
        return replace(
            node,
            free_milli=tuple(free[gpu] for gpu in node.gpus),
            cpu_free_milli=cpu,
            memory_free_bytes=memory,
        )

    def _hold(self, job_id: str, room: RoomHeld) -> None:
        self._holds[job_id] = room
        for share in room.shares:
            self._holds_on.setdefault(share.node_id, {}).setdefault(job_id, []).append(share)

    def _reserve(self, state: State) -> None:
        before, self.reserved = self.reserved, {}
        for job_id, reserved in sorted(state.reserved.items()):
            rows = [self.fleet.row[node_id] for node_id in reserved.node_ids if node_id in self.fleet.row]
            self.reserved[job_id] = np.array(sorted(rows), np.int64)
        for job_id in sorted(before.keys() | self.reserved.keys()):
            old, new = before.get(job_id, _NO_ROWS), self.reserved.get(job_id, _NO_ROWS)
            if not np.array_equal(old, new):
                self.freed += [*old.tolist(), *new.tolist()]


def _nodes_of(room: RoomHeld | None) -> Sequence[str]:
    return () if room is None else tuple(dict.fromkeys(share.node_id for share in room.shares))


_NO_ROWS: Ints = np.zeros(0, np.int64)


def worth_of(state: State) -> WorthLearnt:
    """Return what holes are worth by policy: what was learnt, or their size."""
    if state.policy is not None and "worth" in state.policy.rules:
        return state.seen.worth
    return UNLEARNT


def emptied(node: Node) -> Node:
    """Return the node as if nothing ran there."""
    return replace(
        node,
        free_milli=(WHOLE_MILLI,) * len(node.gpus),
        cpu_free_milli=node.cpu_milli,
        memory_free_bytes=node.memory_bytes,
    )
