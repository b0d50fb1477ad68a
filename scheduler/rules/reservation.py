"""Gangs that no eviction can help reserve the nodes that free up soonest; others start there only if they end before.

The nodes are chosen anew at an interval, for predictions err, until the gang has waited so long that nothing new starts
on them: then they stay the same, and are free at the latest when the longest job there has run for its max_runtime.
A gang that has waited so long, and is barred by quota, has nothing new started that would take what it lacks of that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.decisions import NodesReserved, ReservationDropped
from gangline.events.policy import Policy
from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.fit import Ask
from gangline.scheduler.fleet import Flags, Ints
from gangline.scheduler.reservations import attempt_end_us, is_hard, may_reserve
from gangline.scheduler.roles import Whole, place_whole
from gangline.scheduler.room.claimants import Claiming, claims_of, turns
from gangline.scheduler.room.claims import Victims
from gangline.scheduler.room.plan import plan_of
from gangline.scheduler.round import Round
from gangline.scheduler.rules.quota_reservation import keep_quota, lacks_quota
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import Job, State
from gangline.scheduler.timers import is_due
from gangline.scheduler.views import Views
from gangline.scheduler.views.pending import GroupKey, may_start
from gangline.scheduler.views.running import Runs

RULE = "reservation"
MAX_TRIED = 16
"""Waiting gangs of which it is found out whether an eviction could help them, at each interval."""
NEVER_US = 1 << 62


class Nodes(NamedTuple):
    """Nodes that a gang could have, and when."""

    rows: tuple[int, ...]
    free_at_us: int


def decide(round_: Round) -> None:
    """Choose the nodes of all reservations anew, and make new ones."""
    policy, state = round_.policy, round_.state
    if policy is None:
        return
    on = RULE in policy.rules and policy.reservations_max > 0
    for job_id in sorted(state.reserved):
        cause = _over(state, state.jobs.get(job_id)) if on else "policy lets no gang reserve nodes any more"
        if cause is not None and not round_.emit(ReservationDropped(job_id=job_id, cause=cause)):
            return
    state = round_.state
    if not on or not state.pending or not is_due(state, policy.reservation_interval_us):
        return
    taken: Flags = np.zeros(round_.views.nodes.fleet.size, np.bool_)
    left, quota_left = policy.reservations_max, policy.reservations_max
    for job, group in _waiting(round_, policy):
        if round_.full:
            return
        if quota_left and lacks_quota(round_, policy, job):
            keep_quota(round_, job)
            quota_left -= 1
        elif left:
            left -= _reserve(round_, policy, group, job, taken)
        elif job.job_id in round_.state.reserved:
            round_.emit(ReservationDropped(job_id=job.job_id, cause="policy lets fewer gangs reserve nodes than did"))


def _over(state: State, job: Job | None) -> str | None:
    if job is None:
        return "the job has ended"
    if job.job_id in state.room:
        return "room is held for it"
    return None if may_start(state, job) else "the job may not start now"


def _waiting(round_: Round, policy: Policy) -> list[tuple[Job, GroupKey]]:
    """Return those that keep a reservation, in the order in which they got it, and those that want one, in turn."""
    state, views = round_.state, round_.views
    kept = sorted(state.reserved.items(), key=lambda item: (item[1].since_us, item[0]))
    found = [(state.jobs[job_id], views.pending.group_of(job_id)) for job_id, _ in kept]
    new = [
        (job, group)
        for _, group in sorted(turns(round_, policy))
        if group.shape.gpus > 1 or group.shape.roles
        for *_, job_id in views.pending.groups[group][: policy.reservations_max]
        if may_reserve(state, policy, job := state.jobs[job_id]) and job_id not in state.reserved
    ]
    for job, group in new[:MAX_TRIED]:
        if is_hard(state, policy, job) or not _could_be_helped(round_, policy, job, group):
            found.append((job, group))
    return found


def _could_be_helped(round_: Round, policy: Policy, job: Job, group: GroupKey) -> bool:
    """Whether there would be room if everyone gave way who ever may to this job; whom quota bars needs no nodes."""
    runs = round_.views.running.runs(round_.state, policy)
    claims = claims_of(round_, policy, group, job, runs)
    for claiming in claims:
        claim, nodes, _ = claiming
        ever = _who_may_go(claiming)
        if ever.any() and plan_of(round_, claim, runs, [Victims("service", ever)], nodes) is not None:
            return True
    return not claims


def _who_may_go(claiming: Claiming) -> Flags:
    """Return who may ever give way to a claimant by the rules that policy has on, once he has run for long enough."""
    standing, bench = claiming.claim.standing, claiming.bench
    by_queue: Flags = np.zeros(standing.same.size, np.bool_)
    for rule, whose in (
        ("reclaim", standing.borrows & standing.claims),
        ("priority", standing.same),
        ("service", standing.same | standing.borrows),
        ("recovery", standing.same | standing.borrows | standing.claims),
        ("first_start", standing.same | standing.borrows | standing.claims),
        ("fill", standing.same | standing.borrows | standing.claims),
    ):
        if rule in bench.policy.rules:
            by_queue |= whose
    who: Flags = bench.candidates & bench.by_run(by_queue)
    return who


def _reserve(round_: Round, policy: Policy, group: GroupKey, job: Job, taken: Flags) -> bool:
    """Reserve the nodes for a gang that free up soonest, but `taken`; False if there are not enough."""
    state, views = round_.state, round_.views
    before = state.reserved.get(job.job_id)
    if before is not None and before.node_ids and is_hard(state, policy, job) and _are_usable(state, before):
        taken[[views.nodes.fleet.row[node_id] for node_id in before.node_ids]] = True
        return True
    runs = views.running.runs(state, policy)
    found = [
        nodes
        for claiming in claims_of(round_, policy, group, job, runs)
        if (nodes := _soonest(views, claiming, _Freeing(round_, runs, _who_may_go(claiming)), taken)) is not None
    ]
    if not found:
        if before is not None:
            round_.emit(ReservationDropped(job_id=job.job_id, cause="too few nodes could ever be free for it"))
        return False
    nodes = min(found, key=lambda one: (one.free_at_us, one.rows))
    taken[list(nodes.rows)] = True
    node_ids = tuple(views.nodes.fleet.node_ids[row] for row in nodes.rows)
    if before is None or before.node_ids != node_ids or before.free_at_us != nodes.free_at_us:
        round_.emit(
            NodesReserved(
                job_id=job.job_id,
                node_ids=node_ids,
                since_us=state.now_us if before is None else before.since_us,
                free_at_us=nodes.free_at_us,
            )
        )
    return True


def _are_usable(state: State, reserved: NodesReserved) -> bool:
    nodes = [state.nodes.get(node_id) for node_id in reserved.node_ids]
    return all(node is not None and not node.is_blocked for node in nodes)


def _soonest(views: Views, claiming: Claiming, free_at: "_Freeing", taken: Flags) -> Nodes | None:
    """Return the nodes of the claim that have enough free devices soonest; None if they are too few."""
    fleet, shape = views.nodes.fleet, claiming.claim.shape
    usable = claiming.nodes & ~taken
    together = _emptied(views, shape, usable, free_at) if shape.roles else None
    if together is not None or (shape.roles and place_whole(views.nodes.empty, shape, usable) is None):
        return together
    if shape.nodes is not None:
        return _first(views, shape, usable, free_at, shape.nodes, shape.gpus // shape.nodes)
    if not claiming.claim.gang:
        return _first(views, shape, usable, free_at, 1, shape.gpus)
    for size in sorted({int(one) for one in np.unique(fleet.devices[usable]) if one}, reverse=True):
        count, rest = divmod(shape.gpus, size)
        found = _first(views, shape, usable & (fleet.devices == size), free_at, count, size)
        if found is None or not rest:
            if found is not None:
                return found
            continue
        others = usable.copy()
        others[list(found.rows)] = False
        if shape.required == "pod":
            others &= fleet.pod_index == fleet.pod_index[found.rows[0]]
        last = _first(views, shape, others, free_at, 1, rest)
        if last is not None:
            return Nodes((*found.rows, *last.rows), max(found.free_at_us, last.free_at_us))
    return None


def _emptied(views: Views, shape: Shape, usable: Flags, free_at: "_Freeing") -> Nodes | None:
    """Return the nodes that hold all of a gang with roles once they are empty, of those that are so soonest."""
    at_us = free_at.emptied_us()
    rows = np.flatnonzero(usable & (at_us < NEVER_US))
    rows = rows[np.argsort(at_us[rows], kind="stable")]

    def placed(count: int) -> Whole | None:
        nodes = np.zeros(usable.size, np.bool_)
        nodes[rows[:count]] = True
        return place_whole(views.nodes.empty, shape, nodes)

    few, enough = 0, int(rows.size)
    whole = placed(enough)
    while whole is not None and enough - few > 1:
        middle = (few + enough) // 2
        fewer = placed(middle)
        few, enough, whole = (middle, enough, whole) if fewer is None else (few, middle, fewer)
    if whole is None:
        return None
    taken = sorted(dict.fromkeys([*(row for row, _ in whole.parts), *(part.row for part in whole.roles)]))
    return Nodes(tuple(taken), int(at_us[taken].max()))


def _first(  # noqa: PLR0917 - which nodes, and for what
    views: Views, shape: Shape, usable: Flags, free_at: "_Freeing", count: int, each: int
) -> Nodes | None:
    """Return the nodes that have `each` devices free soonest, of those that could feed the ranks there if empty."""
    fleet, at_us = views.nodes.fleet, free_at.at_us(each)
    usable = usable & views.nodes.empty.fits(Ask(each, WHOLE_MILLI, shape.cpu_milli * each, shape.memory_bytes * each))
    pods = range(len(fleet.pods)) if shape.required == "pod" and count > 1 else (None,)
    best: Nodes | None = None
    for pod in pods:
        rows = np.flatnonzero(usable & (at_us < NEVER_US) & ((fleet.pod_index == pod) if pod is not None else True))
        if rows.size < count:
            continue
        rows = rows[np.argsort(at_us[rows], kind="stable")][:count]
        found = Nodes(tuple(sorted(rows.tolist())), int(at_us[rows].max()))
        if best is None or found.free_at_us < best.free_at_us:
            best = found
    return best


class _Freeing:
    """When nodes are expected to have so many whole devices free. Who may go is gone as soon as that helps."""

    def __init__(self, round_: Round, runs: Runs, who_may_go: Flags) -> None:
        self._state = round_.state
        self._may_go = dict.fromkeys(runs.job_ids[row] for row in np.flatnonzero(who_may_go).tolist())
        self._fleet = round_.views.nodes.fleet
        self._ends: list[list[tuple[int, int]]] | None = None
        self._at_us: dict[int, Ints] = {}

    def at_us(self, each: int) -> Ints:
        """Return by node the core time at which it has `each` devices free; NEVER_US if it has not so many."""
        if each not in self._at_us:
            if self._ends is None:
                self._ends = self._node_ends()
            at_us = [self._one(row, ends, each) for row, ends in enumerate(self._ends)]
            self._at_us[each] = np.array(at_us, np.int64)
        return self._at_us[each]

    def emptied_us(self) -> Ints:
        """Return by node the core time at which all of its devices are free; NEVER_US if some are not to be had."""
        if self._ends is None:
            self._ends = self._node_ends()
        devices = self._fleet.devices.tolist()
        return np.array([self._one(row, ends, devices[row]) for row, ends in enumerate(self._ends)], np.int64)

    def _one(self, row: int, ends: Sequence[tuple[int, int]], each: int) -> int:
        free = int(self._fleet.whole_free[row])
        if free >= each:
            return self._state.now_us
        for at_us, devices in ends:
            free += devices
            if free >= each:
                return at_us
        return NEVER_US

    def _node_ends(self) -> list[list[tuple[int, int]]]:
        """Return by node when devices become free, and how many, in order; fractions as if each had a device's part."""
        state, fleet = self._state, self._fleet
        found: list[list[tuple[int, int]]] = [[] for _ in range(fleet.size)]
        parts: list[dict[int, tuple[int, int]]] = [{} for _ in range(fleet.size)]
        for row, node_id in enumerate(fleet.node_ids):
            for job_id in state.nodes[node_id].held:
                job = state.jobs[job_id]
                attempt = job.attempt
                if attempt is None:
                    continue
                end_us = state.now_us if job_id in self._may_go else attempt_end_us(state, job, attempt)
                for share in attempt.bound.shares:
                    if share.node_id != node_id:
                        continue
                    if share.gpu_milli == WHOLE_MILLI:
                        found[row].append((end_us, len(share.gpus)))
                        continue
                    for gpu in share.gpus:
                        milli, last_us = parts[row].get(gpu, (0, 0))
                        parts[row][gpu] = (milli + share.gpu_milli, max(last_us, end_us))
            found[row] += [(last_us, 1) for _, (_, last_us) in sorted(parts[row].items())]
            found[row].sort()
        return found
