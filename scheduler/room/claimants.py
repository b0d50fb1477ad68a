"""Pending jobs as claimants: in their turn, and for each GPU type that they accept."""

from collections.abc import Sequence
from heapq import heapify
from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.scheduler.elastic import least
from gangline.scheduler.fleet import Flags
from gangline.scheduler.reservations import starves
from gangline.scheduler.room.claims import Bench, Claim, Victims
from gangline.scheduler.room.standing import Claimant, standing_of
from gangline.scheduler.round import Round
from gangline.scheduler.rules.placement import allowed_nodes, kept_nodes
from gangline.scheduler.shapes import is_gang
from gangline.scheduler.state import Job
from gangline.scheduler.turns import Turn, turn_of, waited_us
from gangline.scheduler.views.pending import GroupKey
from gangline.scheduler.views.running import Runs
from gangline.scheduler.views.uses import quota_is_on


class Claiming(NamedTuple):
    """A claim, the nodes where its job may be placed, and who could give way at all."""

    claim: Claim
    nodes: Flags
    bench: Bench


def turns(round_: Round, policy: Policy) -> list[tuple[Turn, GroupKey]]:
    """Return all groups of jobs that wait, as a heap; the first job of each is its claimant."""
    views = round_.views
    groups = views.pending.groups
    heap = [
        (turn_of(round_.state, policy, views, group, groups[group][0]), group)
        for shape in views.pending.by_shape
        for group in views.pending.by_shape[shape]
    ]
    heapify(heap)
    return heap


def claims_of(round_: Round, policy: Policy, group: GroupKey, job: Job, runs: Runs) -> list[Claiming]:
    """Return the claims of a group's job, one for each GPU type; none if quota bars it."""
    state, views, shape = round_.state, round_.views, group.shape
    barred, allowed = allowed_nodes(state, policy, views, job)
    if barred:
        return []
    fleet = views.nodes.fleet
    found = []
    for gpu_type in shape.gpu_types or fleet.types:
        if gpu_type not in fleet.types:
            continue
        nodes = (fleet.type_index == fleet.types.index(gpu_type)) & ~fleet.blocked
        if allowed is not None:
            nodes &= allowed
        if nodes.any():
            found.append(_claiming(round_, policy, group, job, gpu_type, nodes, runs))
    return found


def claims_at_ceiling(round_: Round, policy: Policy, group: GroupKey, job: Job, runs: Runs) -> list[Claiming]:
    """Return the claims of a job for GPU types of which a ceiling lets it have none, until others there have left."""
    state, views, shape = round_.state, round_.views, group.shape
    if not quota_is_on(policy) or not shape.milli:
        return []
    fleet, uses, queue = views.nodes.fleet, views.uses, job.spec.queue
    found = []
    kept: Flags | None = None
    for gpu_type in shape.gpu_types or fleet.types:
        ceiling, short_milli = uses.over_ceiling(queue, gpu_type, shape.milli)
        if not short_milli or gpu_type not in fleet.types:
            continue
        if not job.spec.preemptible and not uses.has_fixed_left(queue, gpu_type, shape.milli):
            continue  # only those could help who give way to nobody
        kept = kept_nodes(state, policy, views, job) if kept is None else kept
        kept = np.zeros(fleet.size, np.bool_) if kept is None else kept
        nodes = (fleet.type_index == fleet.types.index(gpu_type)) & ~fleet.blocked & ~kept
        claiming = _claiming(round_, policy, group, job, gpu_type, nodes, runs)
        claim = claiming.claim._replace(ceiling=ceiling, short_milli=short_milli)
        if nodes.any() and claim.under_ceiling(runs).any():
            found.append(claiming._replace(claim=claim))
    return found


def _claiming(  # noqa: PLR0917 - a job, what it claims, and among whom
    round_: Round, policy: Policy, group: GroupKey, job: Job, gpu_type: str, nodes: Flags, runs: Runs
) -> Claiming:
    state, views, shape = round_.state, round_.views, group.shape
    fleet = views.nodes.fleet
    standing = standing_of(views.uses, policy, runs.queues, Claimant(job.spec.queue, gpu_type, shape.milli))
    claim = Claim(
        job=job,
        shape=shape,
        gang=is_gang(least(policy, job.spec), fleet.widest_of(shape.gpu_types)),
        level=group.level,
        waited_us=waited_us(state, job),
        gpu_type=gpu_type,
        standing=standing,
        starves=starves(state, policy, job),
    )
    return Claiming(claim, nodes, Bench(policy, runs, fleet.types.index(gpu_type)))


def without_ping_pong(round_: Round, job: Job, rules: Sequence[Victims]) -> list[Victims]:
    """Return who may go, without those who evicted this job for the same reason."""
    running = round_.views.running
    rows = [(evictor.reason, row) for evictor in job.evicted_by if (row := running.row_of(evictor.job_id)) is not None]
    if not rows:
        return list(rules)
    found = []
    for rule in rules:
        eligible = rule.eligible.copy()
        eligible[[row for reason, row in rows if reason == rule.reason]] = False
        found.append(rule._replace(eligible=eligible))
    return found
