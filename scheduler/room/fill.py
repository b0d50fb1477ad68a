"""Fill: where whole nodes are idle that no waiting gang fits, a larger gang replaces a few smaller ones beside them.

It gains what the larger gang has more than the smaller ones. One that was replaced never replaces back: it is smaller.
Inside a queue none of a higher priority is: it would take its place back by that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.scheduler.elastic import least
from gangline.scheduler.fleet import Flags
from gangline.scheduler.room.claimants import Claiming, claims_of
from gangline.scheduler.room.claims import Victims, above
from gangline.scheduler.room.orders import evicting
from gangline.scheduler.room.plan import plan_of_rows
from gangline.scheduler.round import Round
from gangline.scheduler.shapes import is_gang
from gangline.scheduler.turns import turn_of
from gangline.scheduler.views.pending import GroupKey
from gangline.scheduler.views.running import Runs

MAX_GANGS_TRIED = 8
"""Waiting gangs that are tried at a time; the largest ones."""


class Gang(NamedTuple):
    """A running gang: its row, the whole nodes that it would leave, its devices."""

    row: int
    nodes: int
    devices: int


def decide(round_: Round, policy: Policy) -> None:
    """Replace smaller gangs by the largest waiting one that gains enough."""
    fleet = round_.views.nodes.fleet
    idle = (fleet.whole_free == fleet.devices) & (fleet.devices > 0) & ~fleet.blocked
    if np.count_nonzero(idle) < policy.fill_nodes:
        return
    runs: Runs | None = None
    for group in _largest_first(round_, policy)[:MAX_GANGS_TRIED]:
        views = round_.views
        runs = views.running.runs(round_.state, policy) if runs is None else runs
        job = round_.state.jobs[views.pending.groups[group][0][-1]]
        for claiming in claims_of(round_, policy, group, job, runs):
            rows, victims = _replaced(round_, policy, claiming)
            plan = plan_of_rows(round_, claiming.claim, runs, [victims], rows, claiming.nodes) if rows else None
            if plan is not None:
                round_.emit(*evicting(round_.state, policy, job.job_id, plan))
                return


def _largest_first(round_: Round, policy: Policy) -> list[GroupKey]:
    """Return the groups of gangs that wait for whole nodes, those of equal size in turn."""
    state, views = round_.state, round_.views
    groups, widest_of = views.pending.groups, views.nodes.fleet.widest_of
    gangs = [
        (-group.shape.gpus, turn_of(state, policy, views, group, groups[group][0]), group)
        for shape in views.pending.by_shape
        for group in views.pending.by_shape[shape]
        if shape.nodes is None
        and is_gang(least(policy, state.jobs[groups[group][0][-1]].spec), widest_of(shape.gpu_types))
    ]
    return [group for _, _, group in sorted(gangs)]


def _replaced(round_: Round, policy: Policy, claiming: Claiming) -> tuple[tuple[int, ...], Victims]:
    """Return the gangs that would go for a waiting one, and of whom they were chosen; none if that gains too little."""
    claim, nodes, bench = claiming
    fleet, runs, standing = round_.views.nodes.fleet, bench.runs, claim.standing
    eligible = bench.candidates & bench.by_run(standing.same | standing.borrows | standing.claims) & runs.gang
    eligible &= (runs.gpus < claim.shape.gpus) & bench.unshielded() & ~bench.protected() & ~above(claim, bench)
    victims = Victims("fill", eligible)
    size = int(fleet.devices[nodes].max(initial=0))
    if not size:
        return (), victims
    whole = nodes & (fleet.devices == size)
    short = -(-claim.shape.gpus // size) - int(np.count_nonzero(whole & (fleet.whole_free == size)))
    if short <= 0:
        return (), victims
    gangs = _gangs(round_, runs, eligible, whole)
    rows = fewest_devices(gangs, short, policy.fill_victims)
    gain = claim.shape.gpus - sum(int(runs.gpus[row]) for row in rows)
    return (rows if gain >= policy.fill_gain_gpus else ()), victims


def _gangs(round_: Round, runs: Runs, eligible: Flags, nodes: Flags) -> list[Gang]:
    devices = round_.views.nodes.fleet.devices
    spans = round_.views.running.spans(runs, eligible, nodes)
    found = [
        Gang(span.row, int(np.count_nonzero(span.devices == devices[span.nodes])), int(runs.gpus[span.row]))
        for span in spans
    ]
    return [gang for gang in found if gang.nodes]


def fewest_devices(gangs: Sequence[Gang], short: int, most: int) -> tuple[int, ...]:
    """Return at most `most` gangs that leave `short` nodes, with the fewest devices in all; none if they cannot."""
    best: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    for gang in sorted(gangs, key=lambda gang: (gang.devices, gang.row)):
        for (count, left), (devices, rows) in sorted(best.items(), reverse=True):
            if count == most or left >= short:
                continue
            key = (count + 1, min(left + gang.nodes, short))
            found = (devices + gang.devices, (*rows, gang.row))
            if key not in best or found < best[key]:
                best[key] = found
    covering = [best[key] for key in sorted(best) if key[1] == short]
    return min(covering)[1] if covering else ()
