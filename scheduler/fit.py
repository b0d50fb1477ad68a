"""Where a job of at most one node goes: to the node that loses least worth by it.

    worth(node) = min(what its devices are worth, CPU free / CPU asked a GPU, memory free / memory asked a GPU)
    cost = worth before - worth after + what devices of its type cost besides

The lowest cost, in hundredths of a device, wins. Of equals a fraction takes the fullest device, a gang the node with
the fewest free whole GPUs, and of wholly free nodes one of the fullest pod, so that whole nodes and pods stay free;
then the first node, and the first devices. Nothing that fits is held back.
"""

from typing import NamedTuple

import numpy as np

from gangline.events.decisions import WorthLearnt
from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.fleet import Flags, Fleet, Ints

COST_STEP = 10
"""Costs that differ by less are equal: worths are rounded."""


class Ask(NamedTuple):
    """What is asked of one node: `gpu_milli` of each of `gpus` devices (none: 0), CPU and memory in all."""

    gpus: int
    gpu_milli: int
    cpu_milli: int = 0
    memory_bytes: int = 0


class Choice(NamedTuple):
    """A node, by its row in the fleet, and the devices taken there, by their columns."""

    row: int
    columns: tuple[int, ...]


class Fit:
    """Finds room on a fleet by what was last learnt; the fleet may change meanwhile, `worth` through `learn` only."""

    def __init__(self, fleet: Fleet, worth: WorthLearnt) -> None:
        self.fleet = fleet
        self.learn(worth)

    def learn(self, worth: WorthLearnt) -> None:
        """Go by another worth from now on."""
        self.worth = worth
        self.fleet.set_worth(worth.of_free)
        prices = {price.gpu_type: price.price for price in worth.prices}
        self._price: Ints = np.array([prices.get(name, 0) for name in self.fleet.types], np.int64)
        self._priced = bool(prices)

    def choose(self, ask: Ask, allowed: Flags | None = None) -> Choice | None:
        """Return where this goes among the allowed nodes (None: all), or None if it fits nowhere."""
        if ask.gpus == 0:
            return self._choose_cpu(ask, allowed)
        if ask.gpu_milli < WHOLE_MILLI:
            return self._choose_fraction(ask, allowed)
        return self._choose_whole(ask, allowed)

    def fits(self, ask: Ask, allowed: Flags | None = None) -> Flags:
        """Return which nodes hold this; who asks for no CPU or memory may go where none is left."""
        fleet = self.fleet
        found = ~fleet.blocked if allowed is None else allowed & ~fleet.blocked
        if ask.gpus and ask.gpu_milli == WHOLE_MILLI:
            found &= fleet.whole_free >= ask.gpus
        if ask.cpu_milli:
            found &= fleet.cpu_free >= ask.cpu_milli
        if ask.memory_bytes:
            found &= fleet.memory_free >= ask.memory_bytes
        return found

    def _choose_cpu(self, ask: Ask, allowed: Flags | None) -> Choice | None:
        rows = np.flatnonzero(self.fits(ask, allowed))
        if not rows.size:
            return None
        before, after = self._bounds(rows, ask)
        worth = self.fleet.gpu_worth[rows]
        cost = self._lost(worth, before, worth, after) // COST_STEP
        return Choice(int(rows[cost.argmin()]), ())

    def _choose_whole(self, ask: Ask, allowed: Flags | None) -> Choice | None:
        fleet = self.fleet
        rows = np.flatnonzero(self.fits(ask, allowed))
        if not rows.size:
            return None
        before, after = self._bounds(rows, ask)
        worth = fleet.gpu_worth[rows]
        left = worth - ask.gpus * int(fleet.worth_of_free[WHOLE_MILLI])
        cost = (self._lost(worth, before, left, after) + self._charge(rows, ask)) // COST_STEP
        rows = rows[cost == cost.min()]
        free = fleet.whole_free[rows]
        rows = rows[free == free.min()]
        row = int(rows[0] if rows.size == 1 else self._keeping_pods(rows))
        columns = np.flatnonzero(fleet.free[row] == WHOLE_MILLI)[: ask.gpus]
        return Choice(row, tuple(columns.tolist()))

    def _keeping_pods(self, rows: Ints) -> int:
        """Return the first partly used node, else the first one of the pod that has the fewest of these wholly free."""
        fleet = self.fleet
        used = rows[fleet.whole_free[rows] < fleet.devices[rows]]
        if used.size:
            return int(used[0])
        pods = fleet.pod_index[rows]
        return int(rows[np.bincount(pods)[pods].argmin()])

    def _choose_fraction(self, ask: Ask, allowed: Flags | None) -> Choice | None:
        fleet = self.fleet
        rows = np.flatnonzero(self.fits(ask, allowed))
        free = fleet.free[rows]
        places, columns = np.nonzero(free >= ask.gpu_milli)
        if not places.size:
            return None
        before, after = self._bounds(rows, ask)
        worth = fleet.gpu_worth[rows]
        at = free[places, columns]
        left = worth[places] + (fleet.worth_of_free[at - ask.gpu_milli] - fleet.worth_of_free[at])
        then = np.minimum(left, after[places]) if after is not None else left
        now = np.minimum(worth, before)[places] if before is not None else worth[places]
        cost = now - then
        if self._priced:
            cost += self._charge(rows, ask)[places]
        cost //= COST_STEP
        best = np.flatnonzero(cost == cost.min())
        best = best[at[best].argmin()]
        return Choice(int(rows[places[best]]), (int(columns[best]),))

    def _bounds(self, rows: Ints, ask: Ask) -> tuple[Ints | None, Ints | None]:
        """Return how many thousandths of a GPU the CPU and memory of these nodes can feed, before and after."""
        fleet, worth = self.fleet, self.worth
        before = after = None
        for free, asked, per_gpu in (
            (fleet.cpu_free, ask.cpu_milli, worth.cpu_milli_per_gpu),
            (fleet.memory_free, ask.memory_bytes, worth.memory_bytes_per_gpu),
        ):
            if not per_gpu:
                continue
            now = free[rows]
            fed = now * WHOLE_MILLI // per_gpu
            fed_after = (now - asked) * WHOLE_MILLI // per_gpu
            before = fed if before is None else np.minimum(before, fed)
            after = fed_after if after is None else np.minimum(after, fed_after)
        return before, after

    def _lost(self, worth: Ints, before: Ints | None, left: Ints, after: Ints | None) -> Ints:
        if before is None or after is None:
            return worth - left
        return np.minimum(worth, before) - np.minimum(left, after)

    def _charge(self, rows: Ints, ask: Ask) -> Ints:
        """Return what the types of these nodes cost besides."""
        return self._price[self.fleet.type_index[rows]] * (ask.gpus * ask.gpu_milli) // WHOLE_MILLI
