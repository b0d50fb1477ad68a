"""What a search for victims goes by, and the search for a claimant that needs one node.

Feasibility comes first: nobody is chosen unless the claimant then fits, and of those who could go the ones that lose
least are chosen, no more than are needed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.fit import Ask
from gangline.scheduler.fleet import Flags, Fleet, Ints
from gangline.scheduler.room.freeing import IMPOSSIBLE, Items, cheapest, items_of, least_costs
from gangline.scheduler.views.running import Runs

MAX_NODES_TRIED = 32
"""Nodes looked at one by one where CPU or memory may be short, too; the cheapest ones."""


class Field(NamedTuple):
    """Who could go, at what cost, and from which nodes."""

    fleet: Fleet
    runs: Runs
    cost: Ints
    single: Flags
    """Attempts on one node that may go."""
    gangs: Flags
    """Attempts on several nodes that may go."""
    nodes: Flags
    """Where the claimant may be placed."""


class Found(NamedTuple):
    """Who goes from one node, and what that costs."""

    cost: int
    node: int
    victims: tuple[int, ...]


def on_one_node(field: Field, ask: Ask) -> Found | None:
    """Return who goes so that one node holds what is asked; None if that cannot be."""
    if ask.gpu_milli < WHOLE_MILLI:
        return _part_of_a_device(field, ask)
    items = items_of(field.runs, field.single, field.cost, field.fleet)
    costs = least_costs(items, field.fleet.whole_free, ask.gpus)
    costs[~field.nodes] = IMPOSSIBLE
    if not ask.cpu_milli and not ask.memory_bytes:
        node = int(costs.argmin()) if costs.size else 0
        if not costs.size or costs[node] >= IMPOSSIBLE:
            return None
        short = max(ask.gpus - int(field.fleet.whole_free[node]), 0)
        return Found(int(costs[node]), node, tuple(sorted(cheapest(items, node, short))))
    order = np.argsort(costs, kind="stable")[:MAX_NODES_TRIED]
    found = [
        one
        for node in order.tolist()
        if costs[node] < IMPOSSIBLE and (one := on_this_node(field, items, node, ask)) is not None
    ]
    return min(found, default=None)


def on_this_node(field: Field, items: Items, node: int, ask: Ask) -> Found | None:
    """Return who goes so that this node holds whole devices, and the CPU and memory with them."""
    short = max(ask.gpus - int(field.fleet.whole_free[node]), 0)
    chosen = list(cheapest(items, node, short))
    if short and not chosen:
        return None
    if not _is_fed(field, node, chosen, ask):
        others = np.flatnonzero(field.single & (field.runs.node == node)).tolist()
        chosen = _fed(field, node, chosen, others, ask)
        if not _is_fed(field, node, chosen, ask):
            return None
        chosen = _needed(field, node, chosen, ask)
    return Found(sum(int(field.cost[row]) for row in chosen), node, tuple(sorted(chosen)))


def _is_fed(field: Field, node: int, chosen: list[int], ask: Ask) -> bool:
    fleet, runs = field.fleet, field.runs
    cpu = int(fleet.cpu_free[node]) + sum(int(runs.cpu_milli[row]) for row in chosen)
    memory = int(fleet.memory_free[node]) + sum(int(runs.memory_bytes[row]) for row in chosen)
    return (not ask.cpu_milli or cpu >= ask.cpu_milli) and (not ask.memory_bytes or memory >= ask.memory_bytes)


def _fed(field: Field, node: int, chosen: list[int], others: list[int], ask: Ask) -> list[int]:
    """Return those chosen and, the cheapest first, others until the node can feed what is asked."""
    if _is_fed(field, node, chosen, ask):
        return chosen
    for row in sorted(others, key=lambda row: (int(field.cost[row]), row)):
        if _is_fed(field, node, chosen, ask):
            break
        if row not in chosen:
            chosen = [*chosen, row]
    return chosen


def _needed(field: Field, node: int, chosen: list[int], ask: Ask) -> list[int]:
    """Return those chosen without whom it would not do; the most expensive are spared first."""
    for row in sorted(chosen, key=lambda row: (-int(field.cost[row]), row)):
        left = [other for other in chosen if other != row]
        if _has_devices(field, node, left, ask) and _is_fed(field, node, left, ask):
            chosen = left
    return chosen


def _has_devices(field: Field, node: int, chosen: list[int], ask: Ask) -> bool:
    """Whether a node has the devices that are asked once those chosen are gone."""
    runs, free = field.runs, field.fleet.free[node].copy()
    for row in chosen:
        if runs.column[row] >= 0:
            free[runs.column[row]] += runs.milli[row]
    whole = sum(int(runs.gpus[row]) for row in chosen)
    if ask.gpu_milli < WHOLE_MILLI:
        return ask.gpus == 0 or whole > 0 or int(free.max(initial=0)) >= ask.gpu_milli
    return int(np.count_nonzero(free == WHOLE_MILLI)) + whole >= ask.gpus


def _part_of_a_device(field: Field, ask: Ask) -> Found | None:
    """Return who goes so that a node has a part of a device free, or only CPU and memory where no device is asked."""
    best: Found | None = None
    for node, there in _rows_by_node(field):
        for chosen in _ways(field, node, there, ask):
            fed = _fed(field, node, chosen, there, ask)
            if not _is_fed(field, node, fed, ask):
                continue
            # Who is a way by himself is needed: without him the device would not be free.
            if len(fed) > 1:
                fed = _needed(field, node, fed, ask)
            found = Found(sum(int(field.cost[row]) for row in fed), node, tuple(sorted(fed)))
            if best is None or found < best:
                best = found
    return best


def _rows_by_node(field: Field) -> Iterator[tuple[int, list[int]]]:
    """Yield each node where the claimant may be placed, and the attempts on that node alone that may go."""
    node_of = field.runs.node
    rows = np.flatnonzero(field.single & (node_of >= 0))
    rows = rows[np.argsort(node_of[rows], kind="stable")]
    nodes = np.flatnonzero(field.nodes)
    first = np.searchsorted(node_of[rows], nodes, side="left").tolist()
    last = np.searchsorted(node_of[rows], nodes, side="right").tolist()
    for place, node in enumerate(nodes.tolist()):
        yield node, rows[first[place] : last[place]].tolist()


def _ways(field: Field, node: int, rows: list[int], ask: Ask) -> list[list[int]]:
    """Return the ways to free a part of a device: none need go, some of its fractions, a job with whole devices."""
    runs, free = field.runs, field.fleet.free[node]
    if ask.gpus == 0 or int(free.max(initial=0)) >= ask.gpu_milli:
        return [[]]
    ways = [[row] for row in rows if runs.gpus[row] > 0]
    for column in sorted({int(runs.column[row]) for row in rows if runs.column[row] >= 0}):
        fractions = [row for row in rows if runs.column[row] == column]
        chosen = _least_that_free(field, fractions, ask.gpu_milli - int(free[column]))
        if chosen:
            ways.append(list(chosen))
    return ways


def _least_that_free(field: Field, rows: list[int], short: int) -> tuple[int, ...]:
    """Return the fractions of a device of least cost that free so many thousandths; empty if all are too few."""
    sets: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for row in rows:
        milli, cost = int(field.runs.milli[row]), int(field.cost[row])
        for freed, (before, chosen) in sorted(sets.items()):
            reached = min(freed + milli, short)
            better = (before + cost, (*chosen, row))
            if reached not in sets or better < sets[reached]:
                sets[reached] = better
    return sets[short][1] if short in sets else ()
