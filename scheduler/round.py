"""A round while it is being decided: emits decisions, applies each at once, and keeps to the size of a record."""

from gangline.events.codec import encode
from gangline.events.policy import Policy
from gangline.events.types import Decision, JobSpec
from gangline.scheduler.evolve import apply_decision
from gangline.scheduler.placement import Shape, emptied, place, shape_of
from gangline.scheduler.state import Node, State

MAX_ROUND_BYTES = 512_000
"""Encoded decisions of one round; only a first group may pass it, and a record holds the largest that there is."""


class Round:
    """The decisions of one tick, and the state with them applied.

    `policy` is that of the round's beginning: one activated in it is effective from the next tick.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.policy: Policy | None = state.policy
        self.encoded: list[bytes] = []
        self.decisions: list[Decision] = []
        self.full = False
        self._size_bytes = 0
        self._fleet: list[Node] | None = None
        self._emptied: list[Node] | None = None
        self._placeable: dict[Shape, bool] = {}

    @property
    def fleet(self) -> list[Node]:
        """The nodes in natural order of their ids; whoever binds a gang keeps it up to date."""
        if self._fleet is None:
            self._fleet = [self.state.nodes[node_id] for node_id in self.state.node_order]
        return self._fleet

    def could_ever_start(self, spec: JobSpec) -> bool:
        """Whether a gang would fit if nothing else ran."""
        shape = shape_of(spec)
        if shape not in self._placeable:
            if self._emptied is None:
                self._emptied = [emptied(node) for node in self.fleet]
            self._placeable[shape] = place(self._emptied, spec) is not None
        return self._placeable[shape]

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
