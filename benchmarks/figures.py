"""What a benchmark yields: a figure, its goal, and whether it is met."""

import statistics
from collections.abc import Callable
from typing import Literal

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number. `value` is None where it could not be measured; `reference` then says why."""

    name: str
    value: float | None
    unit: str
    goal: float | None
    better: Literal["higher", "lower"]
    reference: str
    """What it is compared with, and that one's own number."""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal or a value."""
        if self.goal is None or self.value is None:
            return None
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


def interleaved(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Measure in turns, A B A B ..., and return the median of each; one unmeasured turn of each comes first."""
    ours()
    theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)
