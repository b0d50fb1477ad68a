"""A hypothesis: the fleet as it would be if some jobs were gone. It costs a copy, and is dropped without a trace."""

from collections.abc import Sequence
from typing import Self

from gangline.events.types import Share
from gangline.scheduler.fit import Fit
from gangline.scheduler.fleet import Flags, Fleet
from gangline.scheduler.placement import place
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import Job, State
from gangline.scheduler.views.nodes import NodesView


class Trial:
    """A copy of the fleet from which jobs go, and on which others are placed, by the code that places in earnest."""

    def __init__(self, state: State, nodes: NodesView) -> None:
        self._state = state
        self.fleet: Fleet = nodes.fleet.copy()
        self._worth = nodes.fit.worth

    def copy(self) -> Self:
        """Return another one that begins where this one stands."""
        other = object.__new__(type(self))
        other._state, other._worth = self._state, self._worth
        other.fleet = self.fleet.copy()
        return other

    def without(self, job: Job) -> None:
        """Let a running job be gone."""
        if job.attempt is not None:
            for share in job.attempt.bound.shares:
                self._change(share, -1)

    def take(self, shares: Sequence[Share]) -> None:
        """Let shares be taken."""
        for share in shares:
            self._change(share, 1)

    def give_back(self, shares: Sequence[Share]) -> None:
        """Let shares be free that are not."""
        for share in shares:
            self._change(share, -1)

    @property
    def fit(self) -> Fit:
        """The search for room on it."""
        return Fit(self.fleet, self._worth)

    def place(self, shape: Shape, allowed: Flags | None = None) -> tuple[Share, ...] | None:
        """Return where a gang would go, or None if it does not fit."""
        return place(self.fit, self._state.nodes, shape, allowed)

    def _change(self, share: Share, sign: int) -> None:
        row = self.fleet.row.get(share.node_id)
        if row is None:
            return
        node = self._state.nodes[share.node_id]
        columns = [column for column, gpu in enumerate(node.gpus) if gpu in share.gpus and gpu not in node.broken_gpus]
        self.fleet.take(row, columns, sign * share.gpu_milli, sign * share.cpu_milli, sign * share.memory_bytes)
