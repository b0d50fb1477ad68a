"""What it costs to free whole devices of a node: the least lost work, exactly.

An item is what goes at once: a job on one node, or all the fractions of one device. On each node the items to go are
those of the least cost that free enough, found by dynamic programming over the devices, for all nodes together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.fleet import Flags, Fleet, Ints
from gangline.scheduler.views.running import Runs

IMPOSSIBLE = 1 << 60
LAST_RESORT = 1 << 50
"""Added to the cost of those who are taken only if nobody else will do."""
COUNT_BITS = 5
"""Below the lost work a cost counts the jobs, so that of equals the fewest go; a device has at most 20 fractions."""
MINUTE_S = 60
MINUTES_MOST, SIZES_MOST, LEVELS_MOST = (1 << 15) - 1, 128, 7
SIZE_MILLI = 125
"""What differs by less is of one size."""
SIZE_BIT, LEVEL_BIT, VICTIM_BIT = 20, 32, 40
"""Where the parts of a cost of service begin; each has room for the sum over 32 jobs."""


class Items(NamedTuple):
    """Items by node, cheapest first."""

    node: Ints
    """Row of the fleet."""
    gpus: Ints
    """Whole devices that it frees."""
    cost: Ints
    members: Ints
    """Row of the only job, or -1 - i for the jobs `groups[i]`."""
    groups: tuple[tuple[int, ...], ...]

    def rows(self, item: int) -> tuple[int, ...]:
        """Return the rows of an item's jobs."""
        member = int(self.members[item])
        return (member,) if member >= 0 else self.groups[-1 - member]


def costs_of(runs: Runs, last_resort: Flags | None = None) -> Ints:
    """Return what each attempt costs: its lost work, in units that count jobs below it."""
    cost = (runs.lost << COUNT_BITS) + 1
    return cost if last_resort is None else cost + np.where(last_resort, LAST_RESORT, 0)


def service_costs_of(runs: Runs) -> Ints:
    """Return what each attempt costs where it gives way to a lower level: the fewest go, of these the highest levels.

    Of equals the largest go, for what one leaves beside its claimant serves those who wait behind it, and nobody need
    go for them; then those with the least time since their last committed checkpoint. Least lost work alone would let
    the same jobs go again and again: who has just resumed has lost the least.
    """
    minutes = np.minimum(runs.lost // np.maximum(runs.milli * MINUTE_S, 1), MINUTES_MOST)
    size = SIZES_MOST - np.minimum(runs.milli // SIZE_MILLI, SIZES_MOST)
    level = LEVELS_MOST - np.minimum(runs.level, LEVELS_MOST)
    costs: Ints = (1 << VICTIM_BIT) + (level << LEVEL_BIT) + (size << SIZE_BIT) + minutes
    return costs


def items_of(runs: Runs, eligible: Flags, cost: Ints, fleet: Fleet) -> Items:
    """Return what of the eligible attempts frees whole devices of one node."""
    whole = np.flatnonzero(eligible & (runs.node >= 0) & (runs.gpus > 0))
    node, gpus, price, members = runs.node[whole], runs.gpus[whole], cost[whole], whole
    groups: list[tuple[int, ...]] = []
    fractions = np.flatnonzero(eligible & (runs.column >= 0))
    if fractions.size:
        devices = _devices(runs, fractions, cost, fleet)
        groups = [rows for _, _, rows in devices]
        node = np.concatenate([node, np.array([at for at, _, _ in devices], np.int64)])
        gpus = np.concatenate([gpus, np.ones(len(devices), np.int64)])
        price = np.concatenate([price, np.array([one for _, one, _ in devices], np.int64)])
        members = np.concatenate([members, -1 - np.arange(len(devices), dtype=np.int64)])
    order = np.lexsort((price, node))
    return Items(node[order], gpus[order], price[order], members[order], tuple(groups))


def least_costs(items: Items, free: Ints, need: Ints | int) -> Ints:
    """Return by node the least cost of having `need` devices free there, beside what is free now; or IMPOSSIBLE."""
    short = np.maximum(need - free, 0)
    costs = np.where(short == 0, 0, IMPOSSIBLE)
    if not items.node.size:
        return costs
    nodes, first, counts = np.unique(items.node, return_index=True, return_counts=True)
    keep = (short[nodes] > 0) & (np.add.reduceat(items.gpus, first) >= short[nodes])
    nodes, first, counts = nodes[keep], first[keep], counts[keep]
    if not nodes.size:
        return costs
    most = int(short[nodes].max())
    best: Ints = np.full((nodes.size, most + 1), IMPOSSIBLE, np.int64)
    best[:, 0] = 0
    steps = np.arange(most + 1)
    for place in range(int(counts.max())):
        there = np.flatnonzero(counts > place)
        item = first[there] + place
        before = np.maximum(steps[None, :] - items.gpus[item][:, None], 0)
        mine = best[there]
        with_it = np.take_along_axis(mine, before, 1) + items.cost[item][:, None]
        best[there] = np.minimum(mine, with_it)
    costs[nodes] = np.minimum(best[np.arange(nodes.size), short[nodes]], IMPOSSIBLE)
    return costs


def cheapest(items: Items, node: int, short: int) -> tuple[int, ...]:
    """Return the rows of the jobs of least cost that free `short` devices of a node; empty if they cannot."""
    first = int(np.searchsorted(items.node, node, side="left"))
    last = int(np.searchsorted(items.node, node, side="right"))
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ()), *[None] * short]
    for item in range(first, last):
        gpus, cost = int(items.gpus[item]), int(items.cost[item])
        for freed in range(short, 0, -1):
            before = best[max(freed - gpus, 0)]
            if before is None:
                continue
            found = (before[0] + cost, (*before[1], item))
            at = best[freed]
            if at is None or found < at:
                best[freed] = found
    chosen = best[short]
    return () if chosen is None else tuple(row for item in chosen[1] for row in items.rows(item))


def _devices(runs: Runs, fractions: Ints, cost: Ints, fleet: Fleet) -> Sequence[tuple[int, int, tuple[int, ...]]]:
    """Return (node, cost, rows) of every device that is wholly free once these fractions are gone."""
    found = []
    key = runs.node[fractions] * fleet.widest + runs.column[fractions]
    order = np.argsort(key, kind="stable")
    fractions, key = fractions[order], key[order]
    for part in np.split(np.arange(fractions.size), np.flatnonzero(np.diff(key)) + 1):
        rows = fractions[part]
        node, column = int(runs.node[rows[0]]), int(runs.column[rows[0]])
        if int(fleet.free[node, column]) + int(runs.milli[rows].sum()) == WHOLE_MILLI:
            found.append((node, int(cost[rows].sum()), tuple(rows.tolist())))
    return found
