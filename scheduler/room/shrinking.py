"""Shrinking: GPUs of elastic gangs above their least size go to a claimant before anyone is moved or evicted.

They are taken inside a queue and from those who borrow. A gang keeps as many as it can beside the claimant, on nodes
that it has already, and starts there anew. It counts as preempted: it has run for its time and not given way too often,
unless the claimant reclaims its guarantee.
"""

from collections.abc import Sequence

import numpy as np

from gangline.events.types import WHOLE_MILLI, Share
from gangline.scheduler.elastic import largest, size_of, sized, sizes
from gangline.scheduler.fleet import Flags
from gangline.scheduler.room.claims import Bench, Claim
from gangline.scheduler.room.consolidation import Move, Moves
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.state import Job, State
from gangline.scheduler.views import Views

MAX_TRIED = 16
"""Gangs that are tried for one claimant, those that lose least first; each alone, and then one after the other."""


def shrinks_for(state: State, views: Views, claim: Claim, bench: Bench, nodes: Flags) -> Moves | None:
    """Return which gangs keep what, so that the claimant fits on these nodes; None if that cannot be."""
    rows = np.flatnonzero(_may_shrink(claim, bench))
    runs = bench.runs
    free = int(views.nodes.fleet.whole_free[nodes].sum())
    if not rows.size or not claim.shape.milli or int(runs.surplus[rows].sum()) + free < claim.shape.gpus:
        return None
    order = rows[np.argsort(runs.lost[rows], kind="stable")][:MAX_TRIED].tolist()
    jobs = [state.jobs[runs.job_ids[row]] for row in order]
    for job in jobs:
        found = _shrunk(state, views, claim, [job], nodes)
        if found is not None:
            return found
    for count in range(2, len(jobs) + 1):
        found = _shrunk(state, views, claim, jobs[:count], nodes)
        if found is not None:
            return _fewest(state, views, claim, jobs[:count], nodes, found)
    return None


def _may_shrink(claim: Claim, bench: Bench) -> Flags:
    policy, runs, standing = bench.policy, bench.runs, claim.standing
    may = bench.by_run(standing.same | standing.borrows) & bench.unshielded()
    if "reclaim" in policy.rules and claim.waited_us >= policy.reclaim_after_us:
        may |= bench.by_run(standing.borrows & standing.claims) & (runs.run_us >= policy.reclaim_min_runtime_us)
    found: Flags = may & bench.candidates & (runs.surplus > 0) & claim.under_ceiling(runs)
    return found


def _fewest(  # noqa: PLR0917 - one search, and what it goes by
    state: State, views: Views, claim: Claim, jobs: Sequence[Job], nodes: Flags, found: Moves
) -> Moves:
    """Return what without those comes about who need not shrink; those that lose most are spared first."""
    left = list(jobs)
    for job in reversed(jobs):
        fewer = [one for one in left if one is not job]
        without = _shrunk(state, views, claim, fewer, nodes) if fewer else None
        if without is not None:
            left, found = fewer, without
    return found


def _shrunk(state: State, views: Views, claim: Claim, jobs: Sequence[Job], nodes: Flags) -> Moves | None:
    """Return what these keep if all of them shrink for the claimant: first their least beside it, then what is left."""
    tried = Trial(state, views.nodes)
    for job in jobs:
        tried.without(job)
    least: list[tuple[Share, ...]] = []
    for job in jobs:
        shares = _placed(views, tried, job, sizes(state.policy, job.spec)[0])
        if shares is None:
            return None
        tried.take(shares)
        least.append(shares)
    room = tried.place(claim.shape, nodes)
    if room is None:
        return None
    tried.take(room)
    moves = []
    short = -(-claim.short_milli // WHOLE_MILLI)
    for job, shares in zip(jobs, least, strict=True):
        tried.give_back(shares)
        kept = _most(state, views, tried, job, short)
        if kept is None:
            return None
        tried.take(kept)
        moves.append(Move(job.job_id, kept))
        short = max(short - _given_up(job, kept), 0)
    return None if short else Moves(tuple(moves), room)


def _given_up(job: Job, kept: Sequence[Share]) -> int:
    now = 0 if job.attempt is None else size_of(job.attempt)
    return now - sum(len(share.ranks) for share in kept)


def _most(state: State, views: Views, tried: Trial, job: Job, short: int) -> tuple[Share, ...] | None:
    """Return the most that a gang can keep, less than it has: by `short` GPUs at least, or its least size."""
    attempt = job.attempt
    now = 0 if attempt is None else size_of(attempt)
    all_sizes = sizes(state.policy, job.spec)
    options = [size for size in all_sizes if size < now and (size <= now - short or size == all_sizes[0])]
    return largest(options, lambda size: _placed(views, tried, job, size))


def _placed(views: Views, tried: Trial, job: Job, size: int) -> tuple[Share, ...] | None:
    fleet, attempt = views.nodes.fleet, job.attempt
    own = np.zeros(fleet.size, np.bool_)
    if attempt is not None:
        own[[fleet.row[share.node_id] for share in attempt.bound.shares]] = True
    return tried.place(shape_of(sized(job.spec, size)), own)
