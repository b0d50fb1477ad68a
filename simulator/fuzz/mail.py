"""How records reach the log: each at once, late, or again; and nothing while its sender is cut off."""

import heapq

from gangline.events.types import Event
from gangline.simulator.fuzz.dice import keyed
from gangline.simulator.fuzz.plan import Noise


class Mail:
    """Records on their way to `control`. Times are seconds of the world."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._heap: list[tuple[int, int, Event]] = []
        self._sent = 0
        self.quiet = False
        """Whether nothing is late or repeated any more."""

    def send(self, now_s: int, key: str, event: Event, *, in_order: bool = False) -> None:
        """Send a record, which `key` names for good. In-order ones are never late, but may come again."""
        noise = self._noise
        late_s = 0
        if not in_order and self._happens(noise.delayed_percent, key, "late"):
            late_s = 1 + keyed(noise.seed, key, "by") % noise.delay_most_s
        self._push(now_s + late_s, event)
        if self._happens(noise.repeated_percent, key, "again"):
            self._push(now_s + late_s + keyed(noise.seed, key, "after") % (noise.repeat_most_s + 1), event)

    def due(self, now_s: int) -> list[Event]:
        """Take out what arrives by now, in order."""
        found = []
        while self._heap and self._heap[0][0] <= now_s:
            found.append(heapq.heappop(self._heap)[2])
        return found

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self._heap

    def _happens(self, percent: int, key: str, what: str) -> bool:
        return not self.quiet and percent > 0 and keyed(self._noise.seed, key, what) % 100 < percent

    def _push(self, at_s: int, event: Event) -> None:
        self._sent += 1
        heapq.heappush(self._heap, (at_s, self._sent, event))
