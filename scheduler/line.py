"""The groups of pending jobs as columns, so that whose turn it is next is found anew after each binding.

The order is that of `turns.turn_of`: a binding changes how every queue beside and below its own stands, and so most
turns; a heap of them would be made anew each time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.scheduler.fleet import Flags, Ints
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import State
from gangline.scheduler.turns import FIRST_START, REST, WITHIN, is_long_waiting
from gangline.scheduler.views import Views
from gangline.scheduler.views.pending import Entry, GroupKey
from gangline.scheduler.views.uses import quota_is_on

UNLIMITED_MILLI = 1 << 62
"""What no queue at all is guaranteed: a queue that has jobs and queues below it comes before these."""


class _Columns(NamedTuple):
    """Of each group: what of its turn does not change in a round."""

    recovers_not: Ints
    nodes: Ints
    """Indexes of the queue and those above it, the topmost first; that of no queue behind."""
    milli: Ints
    accepts: Flags
    """By GPU type."""
    negative_priority: Ints
    level: Ints


class Line:
    """Picks the group whose first job is to be tried next. Groups that are closed are not picked any more."""

    def __init__(self, state: State, policy: Policy, views: Views, groups: Sequence[GroupKey]) -> None:
        self._groups = list(groups)
        self._policy = policy
        self._state = state
        self._views = views
        self._stands = False
        """Whether it is known how the queues stand; it is found out when two groups are compared first."""
        self._open: Flags = np.ones(len(groups), np.bool_)
        self._row = {group: row for row, group in enumerate(self._groups)}
        self._by_shape: dict[Shape, list[int]] = {}
        for row, group in enumerate(self._groups):
            self._by_shape.setdefault(group.shape, []).append(row)
        self._otherwise: Ints = np.full(len(groups), REST, np.int64)
        """The class of a group where it is not within guarantee."""
        self._places: Ints = np.zeros((len(groups), 3), np.int64)
        self._heads: list[Entry] = [(0, 0, 0, "")] * len(groups)
        for group in self._groups:
            self.moved_up(state, views, group)

    def _find_out(self) -> None:
        state, views = self._state, self._views
        tree = views.uses.tree
        self._node = {path: index for index, path in enumerate(tree.paths)}
        self._columns = self._made(views)
        limits = [[tree.limits(path, one).guarantee_milli for one in tree.types] for path in tree.paths]
        self._guarantee: Ints = np.array([*limits, [UNLIMITED_MILLI] * len(tree.types)], np.int64).reshape(
            -1, len(tree.types)
        )
        self._use: Ints = np.zeros_like(self._guarantee)
        self._share = [0] * len(tree.paths)
        for path in tree.paths:
            self._follow(state, views, path)
        self._rank_shares(views)
        self._stands = True

    def pick(self) -> tuple[GroupKey, Entry] | None:
        """Return the group whose turn it is, and its first job; None if all are closed."""
        rows = np.flatnonzero(self._open)
        if not rows.size:
            return None
        if rows.size > 1 and self._policy.order == "fair":
            if not self._stands:
                self._find_out()
            rows = self._fairest(rows)
        for place in range(3):
            if rows.size == 1:
                break
            rows = _least(rows, self._places[rows, place])
        row = int(min(rows.tolist(), key=lambda row: self._heads[row]))
        return self._groups[row], self._heads[row]

    def close(self, group: GroupKey) -> None:
        """Pick this group no more."""
        self._open[self._row[group]] = False

    def close_shape(self, shape: Shape) -> None:
        """Pick no group of this shape any more."""
        self._open[self._by_shape[shape]] = False

    def bound(self, state: State, views: Views, group: GroupKey) -> None:
        """Follow the binding of a group's first job."""
        self._state = state
        self.moved_up(state, views, group)
        if self._stands:
            for path in views.uses.tree.prefixes(group.queue):
                self._follow(state, views, path)
            self._rank_shares(views)

    def moved_up(self, state: State, views: Views, group: GroupKey) -> None:
        """Take over who is the first of a group now; close it if nobody is."""
        row = self._row[group]
        line = views.pending.groups.get(group)
        if line is None:
            self._open[row] = False
            return
        head = line[0]
        self._heads[row] = head
        self._places[row] = head[:3]
        waited = group.is_new_gang and is_long_waiting(state, self._policy, state.jobs[head[-1]])
        self._otherwise[row] = FIRST_START if waited else REST

    def _made(self, views: Views) -> _Columns:
        groups, tree = self._groups, views.uses.tree
        paths = [tree.prefixes(group.queue) for group in groups]
        depth = max(len(above) for above in paths)
        none = len(tree.paths)
        nodes = [[self._node.get(path, none) for path in above] + [none] * (depth - len(above)) for above in paths]
        accepts = [
            [not group.shape.gpu_types or one in group.shape.gpu_types for one in tree.types] for group in groups
        ]
        return _Columns(
            recovers_not=np.array([not group.recovering for group in groups], np.int64),
            nodes=np.array(nodes, np.int64),
            milli=np.array([group.shape.milli for group in groups], np.int64),
            accepts=np.array(accepts, np.bool_).reshape(len(groups), -1),
            negative_priority=np.array([-group.priority for group in groups], np.int64),
            level=np.array([group.level for group in groups], np.int64),
        )

    def _fairest(self, rows: Ints) -> Ints:
        columns = self._columns
        rows = _least(rows, columns.recovers_not[rows])
        quota = quota_is_on(self._policy)
        for depth in range(columns.nodes.shape[1]):
            if rows.size == 1:
                return rows
            nodes = columns.nodes[rows, depth]
            classes = self._otherwise[rows]
            if quota:
                left = self._guarantee[nodes] - self._use[nodes]
                within = ((left >= columns.milli[rows, None]) & columns.accepts[rows]).any(axis=1)
                classes = np.where(within, WITHIN, classes)
            rows = _least(rows, classes * len(self._rank) + self._rank[nodes])
        rows = _least(rows, columns.negative_priority[rows])
        return _least(rows, columns.level[rows])

    def _follow(self, state: State, views: Views, path: str) -> None:
        """Take over what a queue uses now."""
        node = self._node.get(path)
        if node is None:
            return
        uses = views.uses
        self._use[node] = [uses.use[path, one] for one in uses.tree.types]
        self._share[node] = uses.share_of(state, self._policy, path)

    def _rank_shares(self, views: Views) -> None:
        """Count the queues by their shares, which are too large for arrays; no queue at all comes first."""
        paths = views.uses.tree.paths
        self._rank: Ints = np.zeros(len(paths) + 1, np.int64)
        for rank, node in enumerate(sorted(range(len(paths)), key=lambda node: (self._share[node], paths[node]))):
            self._rank[node] = rank + 1


def _least(rows: Ints, values: Ints) -> Ints:
    return rows[values == values.min()] if rows.size > 1 else rows
