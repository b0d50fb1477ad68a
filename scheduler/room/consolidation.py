"""Consolidation: a few small preemptible jobs are moved into holes that are held for them, to open a node or several.

A job is moved only where that loses less than it gains: nodes with the fewest devices in use first, at most a few small
jobs a node, and never into a node that the claimant needs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.events.types import WHOLE_MILLI, Share
from gangline.scheduler.elastic import running
from gangline.scheduler.fleet import Flags, Ints
from gangline.scheduler.room.claims import Bench, Claim
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.state import State
from gangline.scheduler.views import Views
from gangline.scheduler.views.running import Runs

MAX_NODES_TRIED = 32
"""Nodes that are tried to be opened for a claimant that needs one."""


class Move(NamedTuple):
    """A job that is moved, and where to."""

    job_id: str
    shares: tuple[Share, ...]


class Moves(NamedTuple):
    """Who is moved, and what that opens for the claimant."""

    moves: tuple[Move, ...]
    shares: tuple[Share, ...]


def moves_for(state: State, views: Views, claim: Claim, bench: Bench, nodes: Flags) -> Moves | None:
    """Return who could be moved so that the claimant fits on these nodes; None if that cannot be."""
    shape = claim.shape
    if shape.gpu_milli < WHOLE_MILLI or shape.gpus <= 1 or shape.roles or shape.cpu_milli or shape.memory_bytes:
        return None
    movable = _movable(bench)
    if not movable.any():
        return None
    if not claim.gang:
        return _open_one(state, views, claim, bench, movable, nodes)
    if shape.nodes is not None or shape.required == "pod":
        return None
    return _open_several(state, views, claim, bench, movable, nodes)


def _movable(bench: Bench) -> Flags:
    policy, runs = bench.policy, bench.runs
    small = (runs.node >= 0) & (runs.gpus <= policy.consolidation_gpus) & (runs.milli > 0) & ~runs.gang
    movable: Flags = bench.candidates & small & bench.unshielded() & (runs.moves < policy.moves_max)
    return movable


def _open_one(  # noqa: PLR0917 - one search, and what it goes by
    state: State, views: Views, claim: Claim, bench: Bench, movable: Flags, nodes: Flags
) -> Moves | None:
    """Open one node: that which needs the fewest devices more, by the fewest moves."""
    fleet, runs, need = views.nodes.fleet, bench.runs, claim.shape.gpus
    rows = np.flatnonzero(movable & (runs.gpus > 0) & nodes[runs.node])
    if not rows.size:
        return None
    could: Ints = np.zeros(fleet.size, np.int64)
    np.add.at(could, runs.node[rows], runs.gpus[rows])
    short = need - fleet.whole_free
    could_open = np.flatnonzero((could >= short) & (short > 0) & (short <= _most(bench.policy)))
    largest_hole = int(fleet.whole_free[nodes].max(initial=0))
    for node in could_open[np.argsort(short[could_open], kind="stable")][:MAX_NODES_TRIED].tolist():
        there = [row for row in rows[runs.node[rows] == node].tolist() if runs.gpus[row] <= largest_hole]
        chosen = _fewest(runs, there, int(short[node]), bench.policy.consolidation_jobs)
        if not chosen:
            continue
        tried = Trial(state, views.nodes)
        moves = _moved(state, tried, runs, chosen, _but(nodes, node))
        shares = tried.place(claim.shape, nodes & ~_but(nodes, node)) if moves is not None else None
        if moves is not None and shares is not None:
            return Moves(moves, shares)
    return None


def _but(nodes: Flags, node: int) -> Flags:
    """Return the nodes without one."""
    others = nodes.copy()
    others[node] = False
    return others


def _most(policy: Policy) -> int:
    return policy.consolidation_jobs * policy.consolidation_gpus


def _fewest(runs: Runs, rows: Sequence[int], short: int, most: int) -> tuple[int, ...]:
    """Return at most so many jobs that free enough devices: as few devices, and then as few jobs, as will do."""
    best: dict[int, tuple[int, int, int, tuple[int, ...]]] = {0: (0, 0, 0, ())}
    for row in rows:
        gpus, lost = int(runs.gpus[row]), int(runs.lost[row])
        for freed, (count, devices, loss, chosen) in sorted(best.items(), reverse=True):
            if count >= most or freed >= short:
                continue
            reached = min(freed + gpus, short)
            found = (count + 1, devices + gpus, loss + lost, (*chosen, row))
            if reached not in best or _better(found) < _better(best[reached]):
                best[reached] = found
    return best[short][3] if short in best else ()


def _better(found: tuple[int, int, int, tuple[int, ...]]) -> tuple[int, int, int, tuple[int, ...]]:
    count, devices, loss, chosen = found
    return devices, count, loss, chosen


def _moved(state: State, tried: Trial, runs: Runs, rows: Sequence[int], elsewhere: Flags) -> tuple[Move, ...] | None:
    """Return where each of these goes, all of them; the trial has them there then. The largest are placed first."""
    for row in rows:
        tried.without(state.jobs[runs.job_ids[row]])
    moves = []
    for row in sorted(rows, key=lambda row: (-int(runs.milli[row]), row)):
        job = state.jobs[runs.job_ids[row]]
        spec = job.spec if job.attempt is None else running(job.spec, job.attempt)
        shares = tried.place(shape_of(spec), elsewhere)
        if shares is None:
            return None
        tried.take(shares)
        moves.append(Move(job.job_id, shares))
    return tuple(moves)


def _open_several(  # noqa: PLR0917 - one search, and what it goes by
    state: State, views: Views, claim: Claim, bench: Bench, movable: Flags, nodes: Flags
) -> Moves | None:
    """Open whole nodes with few small jobs on them, those with the fewest devices in use first."""
    fleet, runs, policy = views.nodes.fleet, bench.runs, bench.policy
    size = int(fleet.devices[nodes].max(initial=0))
    if not size or claim.shape.gpus % size:
        return None
    whole = nodes & (fleet.devices == size)
    free = whole & (fleet.whole_free == size)
    need = claim.shape.gpus // size - int(np.count_nonzero(free))
    if need <= 0:
        return None
    candidates = _nearly_free(bench, views, movable, whole & ~free, policy.consolidation_jobs)
    if candidates.size < need:
        return None
    order = candidates[np.argsort(-fleet.free[candidates].sum(axis=1), kind="stable")]
    holes = nodes & (fleet.whole_free < size)
    holes[order[:need]] = False
    moves: list[Move] = []
    opened: Flags = np.zeros(fleet.size, np.bool_)
    tried = Trial(state, views.nodes)
    for node in order.tolist():
        if (tried.fleet.free[node] < fleet.free[node]).any():
            continue  # it was filled by a move
        before = tried.copy()
        rows = np.flatnonzero(movable & (runs.node == node)).tolist()
        moved = _moved(state, tried, runs, rows, _but(holes & ~opened, node))
        if moved is None:
            tried = before
            continue
        opened[node] = True
        moves += moved
        if np.count_nonzero(opened) == need:
            shares = tried.place(claim.shape, free | opened)
            return None if shares is None else Moves(tuple(moves), shares)
    return None


def _nearly_free(bench: Bench, views: Views, movable: Flags, nodes: Flags, most: int) -> Ints:
    """Return the nodes whose every job could be moved, and that have at most so many."""
    fleet, runs = views.nodes.fleet, bench.runs
    rows = np.flatnonzero(movable)
    milli: Ints = np.zeros(fleet.size, np.int64)
    count: Ints = np.zeros(fleet.size, np.int64)
    np.add.at(milli, runs.node[rows], runs.milli[rows])
    np.add.at(count, runs.node[rows], 1)
    used = fleet.devices * WHOLE_MILLI - fleet.free.sum(axis=1)
    return np.flatnonzero(nodes & (used == milli) & (count <= most))
