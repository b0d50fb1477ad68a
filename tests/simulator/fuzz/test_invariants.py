"""The invariants bite: each break of the core, made on purpose, is found within a few worlds."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from gangline.events.decisions import GangBound
from gangline.events.policy import Policy
from gangline.events.types import Share
from gangline.scheduler import usage
from gangline.scheduler.fleet import Flags, Ints
from gangline.scheduler.placement import place
from gangline.scheduler.reducers import commands, gangs, jobs
from gangline.scheduler.room import plan, search, shrinking, standing
from gangline.scheduler.room.claims import Bench, Claim
from gangline.scheduler.room.freeing import COUNT_BITS, Items
from gangline.scheduler.room.standing import Claimant
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.round import Round
from gangline.scheduler.rules import elastic, placement, room
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import Job, Node
from gangline.scheduler.views import UsesView, Views
from gangline.scheduler.views.running import Runs
from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.scene import Violation
from gangline.simulator.fuzz.world import run

WORLDS = 60
"""Within which a break has to show."""

FIRST = {
    "ceilings bind nobody": 26,
    "who was evicted evicts back": 32,
    "guarantees bind nobody who is not preemptible": 40,
    "who loses most gives way": 60,
    "gangs grow though others wait": 100,
    "nobody shrinks": 250,
    "those within guarantee shrink": 270,
}
"""The first seed where that of others, 0, is far from a world that shows the break."""

MOST_LOST = 1 << 30
"""GPU seconds, more than anybody loses in these worlds."""

Patch = tuple[object, str, object]


def _takes_nothing(node: Node, _share: Share, _job_id: str) -> Node:
    return node


def _forgets_job_only(node: Node, _share: Share, job_id: str) -> Node:
    return replace(node, held=tuple(held for held in node.held if held != job_id))


def _without_last(bind: Callable[[Round, Job, tuple[Share, ...], int], GangBound]) -> object:
    def binding(round_: Round, job: Job, shares: tuple[Share, ...], port: int) -> GangBound:
        bound = bind(round_, job, shares, port)
        return replace(bound, shares=bound.shares[:-1] or bound.shares)

    return binding


def _without_ceilings(uses: UsesView, queue: str, gpu_type: str, milli: int, *, preemptible: bool) -> bool:
    return preemptible or all(
        uses.fixed[path, gpu_type] + milli <= uses.tree.limits(path, gpu_type).guarantee_milli
        for path in uses.tree.prefixes(queue)
    )


def _without_guarantees(uses: UsesView, queue: str, gpu_type: str, milli: int, *, preemptible: bool) -> bool:
    del preemptible
    return all(
        (ceiling := uses.tree.limits(path, gpu_type).ceiling_milli) is None
        or uses.use[path, gpu_type] + milli <= ceiling
        for path in uses.tree.prefixes(queue)
    )


def _dear_ones(runs: Runs, _last_resort: Flags | None = None) -> Ints:
    costs: Ints = (MOST_LOST - runs.lost << COUNT_BITS) + 1
    return costs


def _anybody_shrinks(_claim: Claim, bench: Bench) -> Flags:
    found: Flags = bench.candidates & (bench.runs.surplus > 0) & bench.unshielded()
    return found


def _everybody_borrows(uses: UsesView, policy: Policy, queue: str, claimant: Claimant) -> tuple[bool, bool, bool, bool]:
    own, _, _, claims = STANDS(uses, policy, queue, claimant)
    return own, not own, True, claims


def _anywhere(trial: Trial, shape: Shape, allowed: Flags | None = None) -> tuple[Share, ...] | None:
    """Place as if nothing ran."""
    state = trial._state
    views = Views()
    views.sync(state)
    return place(views.nodes.empty, state.nodes, shape, allowed)


def _all_on(items: Items, node: int, _short: int) -> tuple[int, ...]:
    return tuple(row for item in np.flatnonzero(items.node == node).tolist() for row in items.rows(item))


def _leaves_small_ones(round_: Round, policy: Policy, job: Job, *more: object) -> GangBound | None:
    return None if job.submitted % 2 else TRY(round_, policy, job, *more)  # type: ignore[arg-type] # as it is called


TRY = placement._try
STANDS = standing._stands
BREAKS: dict[str, tuple[Sequence[Patch], str]] = {
    "bindings take nothing": ([(jobs, "take", _takes_nothing)], "no_device|the_core_counts"),
    "gone ranks free nothing": ([(gangs, "give_back", _forgets_job_only)], "the_core_counts"),
    "blocked nodes are used": (
        [(Node, "is_blocked", property(lambda _self: False))],
        "nothing_starts|what_is_held_will_be_free",
    ),
    "one port for all": ([(placement, "free_port", lambda *_: 20_000)], "ports_are_unique"),
    "a rank is left out": ([(placement, "binding", _without_last(placement.binding))], "every_gang_is_whole"),
    "usage never decays": ([(usage, "factor_of", lambda *_: 1 << usage.FACTOR_BITS)], "usage_adds_up"),
    "ceilings bind nobody": ([(UsesView, "allows", _without_ceilings)], "no_ceiling_is_exceeded"),
    "guarantees bind nobody who is not preemptible": (
        [(UsesView, "allows", _without_guarantees)],
        "who_is_not_preemptible_does_not_borrow",
    ),
    "those within guarantee are evicted": ([(standing, "_stands", _everybody_borrows)], "only_borrowers_give_way"),
    "who was evicted evicts back": (
        [(room, "without_ping_pong", lambda _round, _job, rules: list(rules))],
        "nobody_is_evicted_back",
    ),
    "all of a node give way": (
        [(search, "cheapest", _all_on)],
        "nobody_gives_way_in_vain",
    ),
    "who loses most gives way": ([(plan, "costs_of", _dear_ones)], "who_gives_way_loses_least"),
    "gangs grow though others wait": (
        [(elastic, "_wanted", lambda *_: [])],
        "nobody_waits_for_what_a_gang_grows_into",
    ),
    "nobody shrinks": ([(shrinking, "shrinks_for", lambda *_: None)], "elastic_gangs_shrink_before_anybody_goes"),
    "those within guarantee shrink": (
        [(shrinking, "_may_shrink", _anybody_shrinks)],
        "nobody_within_guarantee_shrinks_for_others",
    ),
    "nobody is shielded": (
        [(Bench, "unshielded", lambda bench: np.ones(bench.runs.size, np.bool_))],
        "victims_have_run_for_a_while",
    ),
    "some are left waiting though they fit": ([(placement, "_try", _leaves_small_ones)], "what_fits_starts"),
    "nobody is reclaimed": (
        [
            (room, "EVICTIONS", ()),
            (room, "_for_incomplete", lambda *_: None),
            (room, "_reclaim_a_gang", lambda *_: None),
        ],
        "guarantees_are_reachable",
    ),
    "room is held where others stay": (
        [(Trial, "without", lambda *_: None), (Trial, "place", _anywhere)],
        "what_is_held_will_be_free",
    ),
    "repeats are answered anew": ([(commands, "Answered", None)], "the_core_raises"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_it_is_found_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches, invariant = BREAKS[name]
    for owner, attribute, broken in patches:
        monkeypatch.setattr(owner, attribute, broken)
    with pytest.raises(Violation, match=f"^({invariant})"):
        all(run(generate(seed)) for seed in range(FIRST.get(name, 0), FIRST.get(name, 0) + WORLDS))
