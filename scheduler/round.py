"""A round while it is being decided: emits decisions, applies each at once, and keeps to the size of a record."""

from gangline.events.codec import encode
from gangline.events.policy import Policy
from gangline.events.types import Decision, JobSpec
from gangline.scheduler.elastic import least
from gangline.scheduler.evolve import apply_decision
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.state import Node, State
from gangline.scheduler.views import Views

MAX_ROUND_BYTES = 512_000
"""Encoded decisions of one round; only a first group may pass it, and a record holds the largest that there is."""


class Round:
    """The decisions of one tick, and the state with them applied.

    `policy` is that of the round's beginning: one activated in it is effective from the next tick.
    """

    def __init__(self, state: State, views: Views) -> None:
        self.state = state
        self.policy: Policy | None = state.policy
        self.encoded: list[bytes] = []
        self.decisions: list[Decision] = []
        self.full = False
        self.placed = 0
        """How many of the decisions were emitted when pending jobs had been tried."""
        self._size_bytes = 0
        self._views = views

    @property
    def views(self) -> Views:
        """The indexes, following the state as it is now."""
        self._views.sync(self.state)
        return self._views

    @property
    def fleet(self) -> list[Node]:
        """The nodes in natural order of their ids."""
        return [self.state.nodes[node_id] for node_id in self.state.node_order]

    def could_ever_start(self, spec: JobSpec) -> bool:
        """Whether a gang would fit if nothing else ran."""
        return self.views.nodes.could_hold(shape_of(least(self.policy, spec)))

    def emit(self, *group: Decision) -> bool:
        """Emit decisions that belong together; False, and nothing emitted, if the round is full."""
        encoded = [encode(decision) for decision in group]
        size_bytes = sum(len(value) for value in encoded)
        if self.full or (self.encoded and self._size_bytes + size_bytes > MAX_ROUND_BYTES):
            self.full = True
            return False
        self.encoded += encoded
        self.decisions += group
        self._size_bytes += size_bytes
        for decision in group:
            self.state = apply_decision(self.state, decision)
        return True
