"""What is going to happen in a simulation, by time."""

import heapq
from collections.abc import Callable
from typing import Any

from gangline.simulator.work import OTHERS


class Timeline:
    """What will happen, in order; `now_us` is where the simulation is, in microseconds from its beginning."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us
        self._heap: list[tuple[int, int, int, Callable[[Any], None], Any]] = []
        self._pushed = 0

    def at(self, at_us: int, what: Callable[[Any], None], about: Any = None, *, phase: int = OTHERS) -> None:  # noqa: ANN401 - whatever `what` takes
        """Let something happen at a time: completions, then arrivals, then the rest, each in order of these calls."""
        self._pushed += 1
        heapq.heappush(self._heap, (at_us, phase, self._pushed, what, about))

    @property
    def next_us(self) -> int | None:
        """When the next thing happens; None if nothing will."""
        return self._heap[0][0] if self._heap else None

    def take(self, until_us: int) -> tuple[int, Callable[[Any], None], Any] | None:
        """Take out the next thing, if it happens by then."""
        heap = self._heap
        if not heap or heap[0][0] > until_us:
            return None
        at_us, _, _, what, about = heapq.heappop(heap)
        self.now_us = at_us
        return at_us, what, about
