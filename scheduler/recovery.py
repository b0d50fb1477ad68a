"""What is held for the next attempt of a job that failed: what it still has, and what takes the place of the rest.

On a lost rank, GPU or node the whole attempt stops. Its shares on healthy nodes are kept for the next one, and those
that it lost are replaced by free ones, on spare nodes first; then that attempt binds as soon as the last rank is gone.
Where nothing free can replace them a gang's own shares alone are held, for a while, and completed as others leave.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from gangline.events.decisions import RoomHeld
from gangline.events.policy import Policy
from gangline.events.types import JobSpec, Share
from gangline.scheduler.elastic import largest, sized, sizes
from gangline.scheduler.fit import Ask
from gangline.scheduler.fleet import Flags
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.round import Round
from gangline.scheduler.rules.placement import allowed_nodes
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.spares import spare_nodes
from gangline.scheduler.state import Attempt, Job, State
from gangline.scheduler.views import Views

RULE = "recovery_hold"


def hold_for(round_: Round, job: Job, attempt: Attempt) -> RoomHeld | None:
    """Return what is held for the next attempt of a job of which this one has failed; None for nothing."""
    policy, state = round_.policy, round_.state
    if policy is None or RULE not in policy.rules or not policy.recovery_hold_us or job.job_id in state.room:
        return None
    kept: list[Share] = []
    freed: list[Share] = []
    for share, status in zip(attempt.bound.shares, attempt.status, strict=True):
        if status.lost or not is_left(state, share) or (status.gone and not _is_free(round_.views, state, share)):
            continue
        kept.append(share)
        if status.gone:
            freed.append(share)
    lost = [share for share in attempt.bound.shares if share not in kept]
    if not lost and attempt.blame == "node":
        return None  # some node could not launch it, and nobody knows that another try there would go better
    shares: tuple[Share, ...] | None = tuple(
        replace(share, address=state.nodes[share.node_id].address) for share in kept
    )
    if lost:
        shares = _replaced(round_, policy, replace(job, recovering=True), kept, freed, lost)
    if not shares:
        return None
    until_us = state.now_us + policy.recovery_hold_us
    return RoomHeld(job_id=job.job_id, shares=shares, reason="recovery", until_us=until_us)


def is_left(state: State, share: Share) -> bool:
    """Whether a job may be started again on these GPUs, as far as their node goes."""
    node = state.nodes.get(share.node_id)
    return (
        node is not None
        and not node.is_blocked
        and all(gpu in node.gpus and gpu not in node.broken_gpus for gpu in share.gpus)
    )


def is_whole(policy: Policy | None, spec: JobSpec, shares: Sequence[Share]) -> bool:
    """Whether a job can run on these shares alone."""
    own = sum(len(share.ranks) for share in shares if not share.role)
    others = sum(len(share.ranks) for share in shares if share.role)
    return own in sizes(policy, spec) and others == sum(role.ranks for role in spec.roles)


def incomplete(state: State, policy: Policy) -> list[Job]:
    """Return the jobs that may start and have less held than they need, in the order of their submission."""
    found = [
        job
        for job_id, room in sorted(state.room.items())
        if (job := state.jobs.get(job_id)) is not None
        and job_id in state.pending
        and not (job.held or job.barriers or is_whole(policy, job.spec, room.shares))
    ]
    return sorted(found, key=lambda job: (job.submitted, job.array_index or 0, job.job_id))


def reduced(state: State, policy: Policy, job: Job, room: RoomHeld) -> RoomHeld | None:
    """Return what is left of what was held for a gang to go on, once some of that is lost, too; None for nothing."""
    kept = numbered([share for share in room.shares if is_left(state, share)])
    resized = job.evicted is not None and job.evicted.reason in {"grow", "shrink"} and job.evicted.reason == room.reason
    if not (room.reason == "recovery" or resized) or not kept or any(share.role for share in kept):
        return None
    until_us = state.now_us + policy.recovery_hold_us if room.until_us is None else room.until_us
    return replace(room, shares=kept, until_us=until_us)


def numbered(shares: Sequence[Share]) -> tuple[Share, ...]:
    """Return shares with their ranks counted on from 0."""
    found: list[Share] = []
    rank = 0
    for share in shares:
        found.append(replace(share, first_rank=rank))
        rank += len(share.ranks)
    return tuple(found)


def _is_free(views: Views, state: State, share: Share) -> bool:
    """Whether a share whose ranks are gone was not given to others meanwhile."""
    fleet, node = views.nodes.fleet, state.nodes[share.node_id]
    row = fleet.row[share.node_id]
    return (
        all(int(fleet.free[row, node.gpus.index(gpu)]) >= share.gpu_milli for gpu in share.gpus)
        and (not share.cpu_milli or int(fleet.cpu_free[row]) >= share.cpu_milli)
        and (not share.memory_bytes or int(fleet.memory_free[row]) >= share.memory_bytes)
    )


def _silent(job: Job) -> list[str]:
    """Return the nodes that were lost with a failed attempt, and may be back, but have not reported its ranks gone.

    When the attempt ends they are closed until they do.
    """
    attempt = job.attempt
    if attempt is None:
        return []
    statuses = zip(attempt.bound.shares, attempt.status, strict=True)
    return [share.node_id for share, status in statuses if status.lost and not status.gone]


def _replaced(  # noqa: PLR0917 - one job, and what it has and has not
    round_: Round, policy: Policy, job: Job, kept: Sequence[Share], freed: Sequence[Share], lost: Sequence[Share]
) -> tuple[Share, ...] | None:
    """Return all that the next attempt needs if there is so much, else what is kept of a gang; None for nothing."""
    state, views = round_.state, round_.views
    simple = bool(kept) and not job.spec.roles
    with views.lent(state, job.job_id):
        barred, allowed = allowed_nodes(state, policy, views, job)
        if barred:
            return None
        trial = Trial(state, views.nodes)
        trial.take(freed)
        spares = spare_nodes(policy, views)
        nodes: Flags = np.ones(views.nodes.fleet.size, np.bool_) if allowed is None else allowed.copy()
        nodes[[views.nodes.fleet.row[node_id] for node_id in _silent(job)]] = False
        in_turn = [nodes] if spares is None else [nodes & spares, nodes]
        for where in in_turn if simple else ():
            found = _substituted(trial.copy(), state, job.spec, kept, lost, where)
            if found is not None:
                return found
        trial.give_back(kept)
        now = sum(len(share.ranks) for share in (*kept, *lost) if not share.role)
        options = [size for size in sizes(policy, job.spec) if size <= now] or sizes(policy, job.spec)
        for where in in_turn if len(options) == 1 else (nodes,):
            elsewhere = largest(options, partial(_sized_on, trial, job.spec, where))
            if elsewhere is not None:
                return elsewhere
    return numbered(kept) if simple else None


def _sized_on(trial: Trial, spec: JobSpec, nodes: Flags, size: int) -> tuple[Share, ...] | None:
    return trial.place(shape_of(sized(spec, size) if spec.elastic is not None else spec), nodes)


def _substituted(  # noqa: PLR0917 - what a gang keeps and has lost, and where it may go
    trial: Trial, state: State, spec: JobSpec, kept: Sequence[Share], lost: Sequence[Share], nodes: Flags
) -> tuple[Share, ...] | None:
    """Return the shares that are kept, and for each that was lost one like it on another node; None if there is none.

    They are in the order of ranks: whole nodes pod by pod, and then what is less.
    """
    if spec.topology_required == "node":
        return None
    fleet, first = trial.fleet, trial.fleet.row[kept[0].node_id]
    nodes = nodes & (fleet.type_index == fleet.type_index[first])
    if spec.topology_required == "pod":
        nodes &= fleet.pod_index == fleet.pod_index[first]
    nodes[[fleet.row[share.node_id] for share in kept]] = False
    found = list(kept)
    fit = trial.fit
    for share in lost:
        choice = fit.choose(Ask(len(share.gpus), share.gpu_milli, share.cpu_milli, share.memory_bytes), nodes)
        if choice is None:
            return None
        node = state.nodes[fleet.node_ids[choice.row]]
        gpus = tuple(sorted(node.gpus[column] for column in choice.columns))
        found.append(replace(share, node_id=node.node_id, address=node.address, gpus=gpus))
        nodes[choice.row] = False
    rows = fleet.row
    found.sort(key=lambda one: (-len(one.gpus), int(fleet.pod_index[rows[one.node_id]]), rows[one.node_id]))
    return numbered(found)
