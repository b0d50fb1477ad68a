"""The search for victims of a claimant that needs several nodes.

The cheapest nodes of small jobs go, if their devices are fewer than those of the smallest gang that opens as many
nodes; else that gang. If no gang opens enough, the largest goes, and the search goes on with what is left to open. Who
is not needed after all stays.
"""

from typing import NamedTuple

import numpy as np

from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.fleet import Flags, Ints
from gangline.scheduler.room.freeing import IMPOSSIBLE, LAST_RESORT, Items, cheapest, items_of, least_costs
from gangline.scheduler.room.search import Field
from gangline.scheduler.views.running import Span


class Chosen(NamedTuple):
    """Who goes together, and the nodes that this opens."""

    victims: tuple[int, ...]
    opens: Flags
    devices: int


def on_several_nodes(field: Field, spans: tuple[Span, ...], count: int, each: int) -> tuple[int, ...] | None:
    """Return who goes so that `count` of the nodes have `each` whole devices free; None if that cannot be.

    `spans` are those attempts of `field.gangs` that hold devices on these nodes.
    """
    free = field.fleet.whole_free.copy()
    items = items_of(field.runs, field.single & field.nodes[field.runs.node], field.cost, field.fleet)
    chosen: list[Chosen] = []
    left = list(spans)
    while True:
        costs = least_costs(items, free, each)
        costs[~field.nodes] = IMPOSSIBLE
        short = count - int(np.count_nonzero(costs == 0))
        if short <= 0:
            break
        small = _cheapest_nodes(items, costs, free, short, each)
        gang = _smallest_that_covers(field, left, free, each, short)
        if gang is None and left:
            gang = _largest_that_helps(field, left, free, each, costs)
        if small is not None and (gang is None or small.devices <= gang.devices):
            chosen.append(small)
            break
        if gang is None:
            return None
        chosen.append(gang)
        span = next(one for one in left if one.row == gang.victims[0])
        left.remove(span)
        np.add.at(free, span.nodes, span.devices)
    return _needed(field, spans, chosen, count, each)


def _cheapest_nodes(items: Items, costs: Ints, free: Ints, short: int, each: int) -> Chosen | None:
    """Return the small jobs of the `short` cheapest nodes; None if there are not so many."""
    order = np.argsort(costs, kind="stable")
    order = order[(costs[order] > 0) & (costs[order] < IMPOSSIBLE)][:short]
    if order.size < short:
        return None
    victims: list[int] = []
    for node in order.tolist():
        victims += cheapest(items, node, each - int(free[node]))
    opens = np.zeros(costs.size, np.bool_)
    opens[order] = True
    return Chosen(tuple(victims), opens, int((each - free[order]).sum()))


def _opened(field: Field, span: Span, free: Ints, each: int) -> Flags:
    """Return the nodes that have enough free once this attempt is gone, and have not yet."""
    after = free.copy()
    np.add.at(after, span.nodes, span.devices)
    return (after >= each) & (free < each) & field.nodes


def _smallest_that_covers(field: Field, left: list[Span], free: Ints, each: int, short: int) -> Chosen | None:
    """Return the smallest gang that opens enough nodes; of equals the highest level, then the longest run."""
    runs, best = field.runs, None
    for span in left:
        if span.nodes.size < short:
            continue
        opens = _opened(field, span, free, each)
        if np.count_nonzero(opens) < short:
            continue
        row = span.row
        key = (
            int(field.cost[row]) >= LAST_RESORT,
            int(runs.gpus[row]),
            -int(runs.level[row]),
            -int(runs.run_us[row]),
            row,
        )
        if best is None or key < best[0]:
            best = (key, opens)
    if best is None:
        return None
    return Chosen((best[0][-1],), best[1], best[0][1])


def _largest_that_helps(field: Field, left: list[Span], free: Ints, each: int, costs: Ints) -> Chosen | None:
    """Return the largest gang that opens a node, else the largest without which one could be opened, else any."""
    runs, best = field.runs, None
    for span in left:
        opens = _opened(field, span, free, each)
        blocked = bool((costs[span.nodes] >= IMPOSSIBLE).any())
        row = span.row
        key = (
            not opens.any(),
            not blocked,
            int(field.cost[row]) >= LAST_RESORT,
            -int(runs.gpus[row]),
            -int(runs.level[row]),
            -int(runs.run_us[row]),
            row,
        )
        if best is None or key < best[0]:
            best = (key, opens)
    if best is None:
        return None
    row = best[0][-1]
    return Chosen((row,), best[1], int(runs.gpus[row]))


def _needed(
    field: Field, spans: tuple[Span, ...], chosen: list[Chosen], count: int, each: int
) -> tuple[int, ...] | None:
    """Return those chosen without whom it would not do: the largest are spared first."""
    victims = [row for one in chosen for row in one.victims]
    by_row = {span.row: span for span in spans}
    if _ready(field, by_row, victims, each) < count:
        return None
    groups = sorted(chosen, key=lambda one: (-one.devices, one.victims))
    for group in groups:
        left = [row for row in victims if row not in group.victims]
        if len(left) < len(victims) and _ready(field, by_row, left, each) >= count:
            victims = left
    return tuple(sorted(victims))


def _ready(field: Field, spans: dict[int, Span], victims: list[int], each: int) -> int:
    """Return how many nodes have enough free without the victims."""
    runs = field.runs
    free = field.fleet.whole_free.copy()
    parts = field.fleet.free.astype(np.int64)
    for row in victims:
        span = spans.get(row)
        if span is not None:
            np.add.at(free, span.nodes, span.devices)
        elif runs.column[row] >= 0:
            parts[runs.node[row], runs.column[row]] += runs.milli[row]
        else:
            free[runs.node[row]] += runs.gpus[row]
    free += (parts == WHOLE_MILLI).sum(axis=1) - (field.fleet.free == WHOLE_MILLI).sum(axis=1)
    return int(np.count_nonzero((free >= each) & field.nodes))
