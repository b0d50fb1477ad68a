"""Elastic gangs: what they start with, when they are resized, and what that counts for."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gangline.events.decisions import GangBound, PolicyRefused, PreemptionOrdered, RoomHeld
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import Elastic, JobSpec
from gangline.scheduler.elastic import largest, least, sizes
from gangline.scheduler.explain import explanation
from gangline.simulator.fuzz.kept_views import differences
from tests.scheduler.world import SECOND_US, World, all_of, rules_without, the

QUICK = Policy(
    elastic_interval_us=60 * SECOND_US,
    min_runtime_us=100 * SECOND_US,
    gang_min_runtime_us=100 * SECOND_US,
    shield_step_us=1_000 * SECOND_US,
)


def cluster(nodes: int, policy: Policy = QUICK) -> World:
    world = World(policy)
    for number in range(1, nodes + 1):
        world.node(f"n-{number}", 8)
    return world


def elastic(least_gpus: int, most_gpus: int, step: int = 1) -> Elastic:
    return Elastic(min_gpus=least_gpus, max_gpus=most_gpus, step_gpus=step)


def gpus_of(world: World, job_id: str) -> int:
    return sum(len(gpus) for _, gpus in world.placement(job_id))


def shrunk_or_grown(world: World, seconds: int) -> PreemptionOrdered:
    return the(PreemptionOrdered, world.passes(seconds))


# --- sizes ---


def test_a_gang_has_the_sizes_between_its_bounds_in_its_steps_and_waits_as_its_least() -> None:
    spec = JobSpec(name="a", queue="q", command=("a",), gpus=8, elastic=elastic(4, 16, 4))
    assert list(sizes(Policy(), spec)) == [4, 8, 12, 16]
    assert (least(Policy(), spec).gpus, least(Policy(), spec).elastic) == (4, None)


def test_with_the_rule_off_it_has_the_size_that_it_asks_for() -> None:
    spec = JobSpec(name="a", queue="q", command=("a",), gpus=8, elastic=elastic(4, 16, 4))
    policy = Policy(rules=rules_without("elastic"))
    assert list(sizes(policy, spec)) == [8]
    assert least(policy, spec) is spec


@pytest.mark.parametrize("fits", range(-1, 20))
def test_the_largest_that_fits_is_found_and_few_are_tried(fits: int) -> None:
    tried: list[int] = []

    def found_at(size: int) -> int | None:
        tried.append(size)
        return size if size <= fits else None

    assert largest(range(20), found_at) == (fits if fits >= 0 else None)
    assert len(tried) <= 6


# --- starting ---


@pytest.mark.parametrize(
    ("taken", "gpus"), [(0, 8), (3, 5), (6, 2), (7, None)], ids=["all", "some", "the least", "too few"]
)
def test_it_starts_with_the_most_that_is_free(taken: int, gpus: int | None) -> None:
    world = cluster(1)
    if taken:
        world.runs(gpus=taken, preemptible=False)
    job_id = world.submit(gpus=4, elastic=elastic(2, 8))
    world.tick()
    assert (gpus_of(world, job_id) if world.is_running(job_id) else None) == gpus


def test_its_world_size_is_the_number_of_gpus_that_it_got() -> None:
    world = cluster(2)
    job_id = world.runs(gpus=4, elastic=elastic(2, 16))
    bound = world.attempt(job_id).bound
    assert bound.world_size == 16
    assert [(share.first_rank, len(share.gpus)) for share in bound.shares] == [(0, 8), (8, 8)]


def test_it_gets_no_more_than_the_ceiling_of_its_queue() -> None:
    queue = Queue(path="default", quotas=(Quota(ceiling_milli=5_000),))
    world = cluster(1, replace(QUICK, queues=(queue,)))
    assert gpus_of(world, world.runs(gpus=4, elastic=elastic(2, 8))) == 5


def test_a_larger_gang_gets_whole_nodes_and_a_remainder() -> None:
    world = cluster(3)
    world.runs(gpus=5, preemptible=False)
    assert gpus_of(world, world.runs(gpus=4, elastic=elastic(2, 24))) == 19


def test_why_it_runs_says_what_it_has_and_may_have() -> None:
    world = cluster(1)
    job_id = world.runs(gpus=4, elastic=elastic(2, 16))
    assert "it has 8 GPUs, and may have 2 to 16" in explanation(world.state, job_id).notes


# --- growing ---


def test_to_grow_is_to_be_told_to_give_way_to_nobody_and_to_have_more_held() -> None:
    world = cluster(2)
    other = world.runs(gpus=8)
    job_id = world.runs(gpus=8, elastic=elastic(4, 16))
    world.exits(other)
    decided = world.passes(170)
    order, held = the(PreemptionOrdered, decided), the(RoomHeld, decided)
    assert (order.job_id, order.reason, order.claimant) == (job_id, "grow", None)
    assert (held.job_id, held.reason, sum(len(share.gpus) for share in held.shares)) == (job_id, "grow", 16)
    world.exits(job_id, -15)
    bound = the(GangBound, world.tick())
    assert (bound.job_id, bound.attempt, bound.world_size) == (job_id, 2, 16)
    assert world.job(job_id).preemptions == 1
    assert not world.job(job_id).recovering
    assert not list(differences(world.views, world.state))


def test_its_queue_is_charged_for_what_is_held_from_the_order_on() -> None:
    world = cluster(2)
    other = world.runs(gpus=8)
    job_id = world.runs(gpus=8, elastic=elastic(4, 16))
    world.exits(other)
    shrunk_or_grown(world, 170)
    assert world.views.uses.charges[job_id] == (("default", "H100", 16_000, True),)
    waiting = world.submit(gpus=1)
    world.tick()
    assert not world.is_running(waiting), "what is held for it is for nobody else"


def test_it_grows_no_sooner_than_it_may_be_a_victim_and_each_time_later() -> None:
    world = cluster(4)
    others = [world.runs(gpus=8) for _ in range(3)]
    job_id = world.runs(gpus=8, elastic=elastic(4, 32, 4))
    world.exits(others[0])
    world.passes(90)
    assert world.job(job_id).preemptions == 0
    shrunk_or_grown(world, 80)
    world.exits(job_id, -15)
    world.exits(others[1])
    world.passes(1_000)
    assert world.job(job_id).preemptions == 1, "its shield has grown by 1,000 s"
    assert shrunk_or_grown(world, 200).reason == "grow"


def test_a_clock_that_nothing_else_moves_ticks_when_a_gang_may_grow() -> None:
    world = cluster(1)
    job_id = world.runs(gpus=4, elastic=elastic(4, 16))
    assert list(world.state.timers) == [f"elastic {job_id}"]
    world.exits(job_id)
    world.tick()
    assert not world.state.timers


def grown_hold() -> tuple[World, str]:
    """Return a world in which a gang on n-1 was told to grow onto n-2."""
    world = cluster(2)
    other = world.runs(gpus=8)
    job_id = world.runs(gpus=8, elastic=elastic(4, 16))
    world.exits(other)
    shrunk_or_grown(world, 170)
    return world, job_id


def lose_while_others_wait(world: World, _: str) -> None:
    world.loses("n-1")
    world.submit(gpus=8)


INTERRUPTIONS: dict[str, tuple[Callable[[World, str], None], int]] = {
    "its new node is lost, and others wait": (lose_while_others_wait, 8),
    "the rule is switched off": (lambda world, _: world.activate(replace(QUICK, rules=rules_without("elastic"))), 8),
}


@pytest.mark.parametrize("case", INTERRUPTIONS)
def test_a_growth_that_comes_to_nothing_leaves_a_gang_that_runs(case: str) -> None:
    world, job_id = grown_hold()
    befall, gpus = INTERRUPTIONS[case]
    befall(world, job_id)
    world.tick()
    for node_id in dict.fromkeys(world.nodes_of(job_id)):
        if not world.state.nodes[node_id].lost:
            world.exits(job_id, -15, node_id=node_id)
    world.settle()
    assert gpus_of(world, job_id) == gpus
    assert not world.state.room


# --- shrinking ---


def test_who_shrinks_and_the_claimant_have_all_that_they_need_held_at_once() -> None:
    world = cluster(2)
    job_id = world.runs(gpus=8, elastic=elastic(4, 16))
    claim = world.submit(gpus=6)
    decided = world.passes(170)
    order = the(PreemptionOrdered, decided)
    assert (order.job_id, order.reason, order.claimant) == (job_id, "shrink", claim)
    held = {one.job_id: sum(len(share.gpus) for share in one.shares) for one in all_of(RoomHeld, decided)}
    assert held == {job_id: 10, claim: 6}
    world.exits(job_id, -15)
    world.tick()
    assert (gpus_of(world, job_id), gpus_of(world, claim)) == (10, 6)
    assert not list(differences(world.views, world.state))


def test_nobody_shrinks_for_a_claimant_that_would_not_fit_even_then() -> None:
    world = cluster(2)
    world.runs(gpus=12, elastic=elastic(12, 16))
    world.submit(gpus=6)
    assert not [one for one in all_of(PreemptionOrdered, world.passes(170)) if one.reason == "shrink"]


def test_those_who_need_not_shrink_do_not() -> None:
    world = cluster(3)
    jobs = [world.runs(gpus=8, elastic=elastic(4, 8, 4)) for _ in range(3)]
    world.submit(gpus=4)
    decided = world.passes(170)
    assert len(all_of(PreemptionOrdered, decided)) == 1
    assert the(PreemptionOrdered, decided).job_id in jobs


def test_a_policy_whose_gain_is_negative_is_refused() -> None:
    world = World()
    world.activate(Policy(elastic_gain_ppm=-1))
    assert "elastic_gain_ppm is -1: name 0 or more" in the(PolicyRefused, world.tick()).message


def test_all_who_shrink_are_told_before_anything_is_held_for_one_may_keep_what_another_leaves() -> None:
    world = cluster(1)
    gangs = [world.runs(gpus=4, elastic=elastic(2, 4)) for _ in range(2)]
    assert [world.placement(gang) for gang in gangs] == [[("n-1", (0, 1, 2, 3))], [("n-1", (4, 5, 6, 7))]]
    world.passes(200)
    claimant = world.submit(gpus=4)
    decided = [one for one in world.passes(60) if isinstance(one, PreemptionOrdered | RoomHeld)]
    assert [type(one) for one in decided] == [PreemptionOrdered] * 2 + [RoomHeld] * 3
    told = sorted(gangs)
    assert [one.job_id for one in decided] == [*told, *told, claimant]
    held = [[*share.gpus] for one in decided if isinstance(one, RoomHeld) for share in one.shares]
    assert held == [[0, 1], [2, 3], [4, 5, 6, 7]]
    for gang in gangs:
        assert not world.is_running(claimant)
        world.exits(gang, -15)
        world.tick()
    assert [gpus_of(world, one) for one in (*gangs, claimant)] == [2, 2, 4]
