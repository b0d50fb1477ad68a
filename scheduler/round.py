"""A round while it is being decided: emits decisions, applies each at once, and keeps to the size of a record."""

from gangline.events.codec import encode
from gangline.events.types import Decision, Policy
from gangline.scheduler.evolve import apply_decision
from gangline.scheduler.state import State

MAX_ROUND_BYTES = 512_000
"""Encoded decisions of one round; well below the limit of a record, so that a last group may pass it."""


class Round:
    """The decisions of one tick, and the state with them applied.

    `policy` is that of the round's beginning: one activated in it is effective from the next tick.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.policy: Policy | None = state.policy
        self.encoded: list[bytes] = []
        self.full = False
        self._size_bytes = 0

    def emit(self, *group: Decision) -> bool:
        """Emit decisions that belong together; False, and nothing emitted, if the round is full."""
        encoded = [encode(decision) for decision in group]
        size_bytes = sum(len(value) for value in encoded)
        if self.full or (self.encoded and self._size_bytes + size_bytes > MAX_ROUND_BYTES):
            self.full = True
            return False
        self.encoded += encoded
        self._size_bytes += size_bytes
        for decision in group:
            self.state = apply_decision(self.state, decision)
        return True
