"""From who may go to who goes: a plan names the victims and the very shares that the claimant will be bound to.

Whatever a search proposes is tried on a copy of the fleet by the code that places in earnest; if the claimant would
still not fit, nobody goes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.types import WHOLE_MILLI, PreemptionReason, Share
from gangline.scheduler.fit import Ask
from gangline.scheduler.fleet import Flags
from gangline.scheduler.room.claims import Claim, Victims
from gangline.scheduler.room.freeing import costs_of, service_costs_of
from gangline.scheduler.room.gangs import on_several_nodes
from gangline.scheduler.room.search import Field, on_one_node
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.round import Round
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import State
from gangline.scheduler.views import Views
from gangline.scheduler.views.running import Runs

MAX_GANGS_TRIED = 8
"""Gangs of which one goes for a small claimant; the smallest ones."""

MAX_SPARED = 64
"""Victims of whom each is tried without, where whole nodes and a rest are opened together; the dearest ones."""


class Victim(NamedTuple):
    """A job that gives way, and by which rule."""

    job_id: str
    reason: PreemptionReason


class Plan(NamedTuple):
    """Who gives way, and what is held for the claimant."""

    victims: tuple[Victim, ...]
    shares: tuple[Share, ...]


def plan_of(round_: Round, claim: Claim, runs: Runs, rules: Sequence[Victims], nodes: Flags) -> Plan | None:
    """Return the plan of least loss for a claimant on these nodes, by what the rules allow; None if there is none."""
    views = round_.views
    eligible = np.zeros(runs.size, np.bool_)
    last_resort = np.ones(runs.size, np.bool_)
    for rule in rules:
        eligible |= rule.eligible
        last_resort &= ~rule.eligible if rule.last_resort is None else ~rule.eligible | rule.last_resort
    only_service = all(rule.reason == "service" or not rule.eligible.any() for rule in rules)
    cost = service_costs_of(runs) if only_service else costs_of(runs, last_resort)
    field = Field(views.nodes.fleet, runs, cost, eligible & (runs.node >= 0), eligible & (runs.node < 0), nodes)
    if claim.short_milli:
        return _plan_of_whole(round_, claim, rules, field)
    rows = _on_several(views, claim.shape, field) if claim.gang else _on_one_node(field, claim.shape)
    more = bool(claim.shape.roles) or (rows is not None and claim.gang and _is_fed_too(claim.shape))
    if rows is None and not more:
        return _plan_with_scattered(round_, claim, rules, field)
    if not rows:
        return _plan_of_whole(round_, claim, rules, field) if more else None
    plan = plan_of_rows(round_, claim, runs, rules, rows, nodes)
    if plan is None and claim.gang and not claim.shape.roles:
        rest = _rest(field._replace(fleet=_without(round_, runs, rows).fleet), claim.shape, rows)
        rows = (*rows, *rest)
        plan = plan_of_rows(round_, claim, runs, rules, rows, nodes) if rest else None
    if plan is None and more:
        return _plan_of_whole(round_, claim, rules, field)
    has_rest = claim.gang and claim.shape.gpus % max(int(field.fleet.devices[nodes].max(initial=0)), 1)
    if plan is None or len(rows) == 1 or not (has_rest or runs.scattered[list(rows)].any()):
        return plan
    # What was opened as a whole node may do for the rest, and the other way round; who is scattered frees more than
    # was counted.
    needed = _needed(round_, claim, runs, sorted(rows, key=lambda row: (-int(cost[row]), row)), nodes)
    return plan_of_rows(round_, claim, runs, rules, needed, nodes)


def _is_fed_too(shape: Shape) -> bool:
    """Whether a gang asks for CPU or memory, which nodes with enough devices may not have."""
    return bool(shape.cpu_milli or shape.memory_bytes)


def _plan_with_scattered(round_: Round, claim: Claim, rules: Sequence[Victims], field: Field) -> Plan | None:
    """Return the plan in which borrowers go who are scattered, and others beside them; None if that is not enough.

    What these free no search counts, and the guarantee takes it all the same.
    """
    runs = field.runs
    reclaimed = np.zeros(runs.size, np.bool_)
    for rule in rules:
        if rule.reason == "reclaim":
            reclaimed |= rule.eligible
    missed = reclaimed & runs.scattered
    if claim.gang:  # whole devices on several nodes were counted
        missed &= runs.milli != runs.gpus * WHOLE_MILLI
    if not missed.any():
        return None
    nodes = field.nodes if claim.gang else field.nodes & _touched(round_, runs, missed)
    single = field.single & (reclaimed | ~runs.scattered)
    if not claim.gang:
        single &= nodes[runs.node]
    return _plan_of_whole(
        round_, claim, rules, field._replace(single=single, gangs=field.gangs & reclaimed, nodes=nodes)
    )


def _touched(round_: Round, runs: Runs, rows: Flags) -> Flags:
    """Return the nodes on which some of these attempts lie."""
    fleet = round_.views.nodes.fleet
    touched = np.zeros(fleet.size, np.bool_)
    for row in np.flatnonzero(rows).tolist():
        attempt = round_.state.jobs[runs.job_ids[row]].attempt
        if attempt is not None:
            touched[[fleet.row[share.node_id] for share in attempt.bound.shares]] = True
    return touched


def _plan_of_whole(round_: Round, claim: Claim, rules: Sequence[Victims], field: Field) -> Plan | None:
    """Return the plan for a gang that needs more than whole devices, or that a ceiling bars; None if it never fits.

    The cheapest go until all of it fits. Of these stays whoever need not go after all, the dearest first.
    """
    runs, cost = field.runs, field.cost
    eligible = np.flatnonzero((field.single | field.gangs) & claim.under_ceiling(runs))
    rows = eligible[np.argsort(cost[eligible], kind="stable")].tolist()

    def placed(gone: Sequence[int]) -> tuple[Share, ...] | None:
        if _freed_milli(runs, gone) < claim.short_milli:
            return None
        return _without(round_, runs, gone).place(claim.shape, field.nodes)

    if placed(rows) is None:
        return None
    few, enough = 0, len(rows)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if placed(rows[:middle]) is not None else (middle, enough)
    given = [share.node_id for share in placed(rows[:enough]) or ()]
    there = [row for row in rows[:enough] if _is_needed(round_.state, runs, row, given)]
    if not there or placed(there) is None:
        there = rows[:enough]
    needed = _needed(round_, claim, runs, list(reversed(there)), field.nodes)
    return plan_of_rows(round_, claim, runs, rules, needed, field.nodes)


def _freed_milli(runs: Runs, rows: Sequence[int]) -> int:
    return int(runs.milli[list(rows)].sum())


def plan_of_rows(  # noqa: PLR0917 - a plan, and all that it follows from
    round_: Round, claim: Claim, runs: Runs, rules: Sequence[Victims], rows: Sequence[int], nodes: Flags
) -> Plan | None:
    """Return the plan in which these go; None if the claimant would still not fit on these nodes."""
    shares = _without(round_, runs, rows).place(claim.shape, nodes)
    if shares is None:
        return None
    given = [share.node_id for share in shares]
    # At a ceiling one may have to go who lies elsewhere.
    victims = [row for row in sorted(rows) if claim.short_milli or _is_needed(round_.state, runs, row, given)]
    if not victims:
        return None
    return Plan(tuple(Victim(runs.job_ids[row], _reason(rules, row)) for row in victims), shares)


def plan_of_gang(round_: Round, claim: Claim, runs: Runs, victims: Victims, nodes: Flags) -> Plan | None:
    """Return the plan in which the smallest gang goes; None if there is none, or the claimant would still not fit."""
    rows = sorted(np.flatnonzero(victims.eligible).tolist(), key=lambda row: (int(runs.gpus[row]), row))
    for row in rows[:MAX_GANGS_TRIED]:
        plan = plan_of_rows(round_, claim, runs, [victims], (row,), nodes)
        if plan is not None:
            return plan
    return None


def _needed(round_: Round, claim: Claim, runs: Runs, rows: Sequence[int], nodes: Flags) -> tuple[int, ...]:
    """Return those without whom it would not do; who is named first is spared first."""
    tried = _without(round_, runs, rows)
    needed = list(rows)
    for row in rows[:MAX_SPARED]:
        attempt = round_.state.jobs[runs.job_ids[row]].attempt
        spared_milli = _freed_milli(runs, needed) - int(runs.milli[row])
        if attempt is None or spared_milli < claim.short_milli:
            continue
        tried.take(attempt.bound.shares)
        if tried.place(claim.shape, nodes) is not None:
            needed.remove(row)
        else:
            tried.give_back(attempt.bound.shares)
    return tuple(needed)


def _without(round_: Round, runs: Runs, rows: Sequence[int]) -> Trial:
    tried = Trial(round_.state, round_.views.nodes)
    for row in rows:
        tried.without(round_.state.jobs[runs.job_ids[row]])
    return tried


def _reason(rules: Sequence[Victims], row: int) -> PreemptionReason:
    return next(rule.reason for rule in rules if rule.eligible[row])


def _is_needed(state: State, runs: Runs, row: int, given: Sequence[str]) -> bool:
    """Whether a victim lies on a node that the claimant is given."""
    attempt = state.jobs[runs.job_ids[row]].attempt
    return attempt is not None and any(share.node_id in given for share in attempt.bound.shares)


def _on_one_node(field: Field, shape: Shape) -> tuple[int, ...] | None:
    ranks = max(shape.gpus, 1)
    found = on_one_node(field, Ask(shape.gpus, shape.gpu_milli, shape.cpu_milli * ranks, shape.memory_bytes * ranks))
    return None if found is None else found.victims


def _on_several(views: Views, shape: Shape, field: Field) -> tuple[int, ...] | None:
    """Return who goes for whole nodes of one size, the largest that will do, or for equal parts of nodes."""
    if shape.nodes is not None:
        return _on_pods(views, shape, field, shape.nodes, shape.gpus // shape.nodes)
    devices = field.fleet.devices
    for size in sorted({int(one) for one in np.unique(devices[field.nodes]) if one}, reverse=True):
        whole = field._replace(nodes=field.nodes & (devices == size))
        rows = _on_pods(views, shape, whole, shape.gpus // size, size)
        if rows is not None:
            return rows or _rest(field, shape, ())
    return None


def _on_pods(views: Views, shape: Shape, field: Field, count: int, each: int) -> tuple[int, ...] | None:
    """Return who goes for a number of nodes, in the pod of least loss where one pod is required."""
    fleet = field.fleet
    if shape.required != "pod":
        return on_several_nodes(field, views.running.spans(field.runs, field.gangs, field.nodes), count, each)
    best: tuple[int, int, tuple[int, ...]] | None = None
    for pod in range(len(fleet.pods)):
        within = field._replace(nodes=field.nodes & (fleet.pod_index == pod))
        rows = on_several_nodes(within, views.running.spans(field.runs, field.gangs, within.nodes), count, each)
        if rows is not None:
            found = (sum(int(field.cost[row]) for row in rows), pod, rows)
            best = found if best is None else min(best, found)
    return best[2] if best is not None else None


def _rest(field: Field, shape: Shape, gone: Sequence[int]) -> tuple[int, ...]:
    """Return who goes besides for the devices that are left over when whole nodes are taken, on another node."""
    fleet = field.fleet
    size = int(fleet.devices[field.nodes].max(initial=0))
    rest = shape.gpus % size if size and shape.nodes is None else 0
    if not rest:
        return ()
    stays = field.single.copy()
    stays[list(gone)] = False
    ask = Ask(rest, WHOLE_MILLI, shape.cpu_milli * rest, shape.memory_bytes * rest)
    # A node that has the rest already would have been taken, were it not one of the whole ones.
    found = on_one_node(field._replace(single=stays, nodes=field.nodes & (fleet.whole_free < rest)), ask)
    return () if found is None else found.victims
