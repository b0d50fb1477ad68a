"""Reservations: which nodes a gang gets that no eviction can help, who may start there meanwhile, and for how long."""

import random

import pytest
from msgspec.structs import replace

from gangline.events.control import HoldJob
from gangline.events.decisions import NodesReserved, PreemptionOrdered, ReservationDropped
from gangline.events.policy import Policy, Queue, Quota
from gangline.scheduler.decide import next_due_us
from tests.scheduler.world import SECOND_US, World, all_of, the

EVICTIONS = ("reclaim", "priority", "service", "recovery", "first_start", "fill", "batch", "consolidation")


def world(nodes: int, *, gpus: int = 4, **policy: object) -> World:
    """Return nodes with a policy that reserves soon."""
    soon = {"reservation_after_us": 60 * SECOND_US, "reservation_interval_us": 60 * SECOND_US} | policy
    made = World(replace(Policy(), **soon))
    for number in range(nodes):
        made.node(f"node-{number}", gpus)
    made.tick()
    return made


def fixed(it: World, gpus: int, minutes: int | None, **changes: object) -> str:
    """Run a job that gives way to nobody."""
    max_runtime_us = None if minutes is None else minutes * 60 * SECOND_US
    return it.runs(gpus=gpus, preemptible=False, max_runtime_us=max_runtime_us, **changes)


def test_a_gang_that_no_eviction_can_help_reserves_the_nodes_that_free_up_soonest() -> None:
    it = world(4)
    for minutes in (400, 100, 300, 200):
        fixed(it, 4, minutes)
    gang = it.submit(gpus=8)
    assert all_of(NodesReserved, it.passes(50)) == []
    reserved = the(NodesReserved, it.passes(70))
    assert (reserved.job_id, reserved.node_ids) == (gang, ("node-1", "node-3"))
    assert it.state.now_us + 190 * 60 * SECOND_US < reserved.free_at_us < it.state.now_us + 200 * 60 * SECOND_US


def test_a_gang_that_an_eviction_could_help_reserves_nothing_and_waits_for_it() -> None:
    it = world(2)
    for _ in range(2):
        it.runs(gpus=4)
    it.submit(gpus=8)
    decided = it.passes(300)
    assert all_of(NodesReserved, decided) == []
    assert all_of(PreemptionOrdered, decided) == []


def test_who_could_give_way_by_no_rule_that_is_on_frees_nothing_before_its_end() -> None:
    it = world(2, rules=tuple(rule for rule in Policy().rules if rule not in EVICTIONS))
    for minutes in (300, 100):
        it.runs(gpus=4, max_runtime_us=minutes * 60 * SECOND_US)
    gang = it.submit(gpus=8)
    reserved = the(NodesReserved, it.passes(120))
    assert reserved.job_id == gang
    assert reserved.free_at_us > it.state.now_us + 250 * 60 * SECOND_US


def test_others_start_on_reserved_nodes_only_if_they_end_before() -> None:
    it = world(2)
    fixed(it, 3, 100)
    fixed(it, 4, 100)
    it.submit(gpus=8)
    assert len(the(NodesReserved, it.passes(120)).node_ids) == 2
    long = it.submit(gpus=1, max_runtime_us=200 * 60 * SECOND_US)
    short = it.submit(gpus=1, max_runtime_us=60 * 60 * SECOND_US)
    it.tick()
    assert it.is_running(short)
    assert not it.is_running(long)


@pytest.mark.parametrize("ran_s", [5, 8_000])
def test_without_a_declared_maximum_the_durations_seen_say_who_ends_before(ran_s: int) -> None:
    it = world(2)
    for _ in range(3):
        jobs = [it.runs(gpus=1) for _ in range(8)]
        it.passes(ran_s)
        for job_id in jobs:
            it.exits(job_id)
        it.tick()
    fixed(it, 3, 100)
    fixed(it, 4, 100)
    it.submit(gpus=8)
    it.passes(120)
    unknown = it.submit(gpus=1)
    it.tick()
    assert it.is_running(unknown) == (ran_s == 5)


def test_a_reservation_for_a_job_outside_its_guarantee_bars_nobody_within_his_own_for_long() -> None:
    teams = tuple(Queue(path=path, quotas=(Quota(guarantee_milli=8_000),)) for path in ("a", "b"))
    it = world(4, queues=teams)
    fixed(it, 4, 1_000, queue="a")
    fixed(it, 4, 1_000, queue="b")
    fixed(it, 3, 1_000, queue="b")
    gang = it.submit(gpus=12, queue="b")
    assert "node-3" in the(NodesReserved, it.passes(120)).node_ids
    borrower = it.submit(gpus=4, queue="b")
    guaranteed = it.submit(gpus=4, queue="a")
    it.passes(330)
    assert not it.is_running(guaranteed)
    it.passes(90)
    assert it.nodes_of(guaranteed) == ["node-3"]
    assert not it.is_running(gang)
    assert not it.is_running(borrower)


def test_who_is_within_his_guarantee_takes_back_what_is_borrowed_before_he_starts_on_reserved_nodes() -> None:
    teams = tuple(Queue(path=path, quotas=(Quota(guarantee_milli=8_000),)) for path in ("a", "b"))
    it = world(5, queues=teams)
    fixed(it, 4, 3_000, queue="a")
    fixed(it, 4, 1_000, queue="b")
    it.runs(gpus=4, queue="b")
    it.runs(gpus=3, queue="b")
    fixed(it, 2, 2_000, queue="b")
    borrower = it.runs(gpus=2, queue="b")
    assert it.nodes_of(borrower) == ["node-4"]
    it.submit(gpus=12, queue="b")
    assert the(NodesReserved, it.passes(120)).node_ids == ("node-1", "node-2", "node-3")
    guaranteed = it.submit(gpus=1, queue="a")
    order = the(PreemptionOrdered, it.passes(330))
    assert (order.job_id, order.reason, order.claimant) == (borrower, "reclaim", guaranteed)


def test_who_may_be_evicted_counts_as_gone_and_goes_as_soon_as_the_rest_is_free() -> None:
    it = world(3, min_runtime_us=60 * SECOND_US)
    fixed(it, 4, 100)
    preemptible = it.runs(gpus=4, max_runtime_us=300 * 60 * SECOND_US)
    sooner = fixed(it, 4, 50)
    gang = it.submit(gpus=8)
    decided = it.passes(120)
    assert the(NodesReserved, decided).node_ids == ("node-1", "node-2")
    assert all_of(PreemptionOrdered, [*decided, *it.passes(1_800)]) == []
    it.exits(sooner)
    order = the(PreemptionOrdered, it.passes(60))
    assert (order.job_id, order.reason, order.claimant) == (preemptible, "service", gang)


def test_the_nodes_are_chosen_anew_when_others_turn_out_to_be_free_sooner() -> None:
    it = world(3)
    jobs = [fixed(it, 4, minutes) for minutes in (100, 200, 300)]
    gang = it.submit(gpus=8)
    assert the(NodesReserved, it.passes(120)).node_ids == ("node-0", "node-1")
    it.exits(jobs[2])
    assert the(NodesReserved, it.passes(60)).node_ids == ("node-0", "node-2")
    it.exits(jobs[0])
    it.tick()
    assert it.nodes_of(gang) == ["node-0", "node-2"]
    assert not it.state.reserved


def test_as_many_gangs_reserve_at_a_time_as_policy_says_each_its_own_nodes() -> None:
    it = world(4, reservations_max=2)
    for minutes in (100, 110, 120, 130):
        fixed(it, 4, minutes)
    gangs = [it.submit(gpus=8) for _ in range(3)]
    reserved = all_of(NodesReserved, it.passes(120))
    assert sorted({one.job_id for one in reserved}) == sorted(gangs[:2])
    assert sorted(node_id for job in gangs[:2] for node_id in it.state.reserved[job].node_ids) == [
        f"node-{number}" for number in range(4)
    ]


def test_a_reservation_ends_with_its_gang() -> None:
    it = world(2)
    for _ in range(2):
        fixed(it, 4, 100)
    gang = it.submit(gpus=8)
    it.passes(120)
    assert gang in it.state.reserved
    it.cancel(gang)
    it.tick()
    assert not it.state.reserved


def test_a_gang_that_its_user_holds_gives_its_nodes_up() -> None:
    it = world(2)
    for _ in range(2):
        fixed(it, 4, 100)
    gang = it.submit(gpus=8)
    it.passes(120)
    it.command(HoldJob, job_id=gang)
    assert the(ReservationDropped, it.tick()).job_id == gang


@pytest.mark.parametrize("preemptible", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_gang_under_a_flood_waits_at_most_until_hard_and_for_the_longest_job_on_its_nodes(
    seed: int, preemptible: bool
) -> None:
    """Small jobs without end, more than the cluster holds, each as long as it may be."""
    draw = random.Random(seed)
    hard_s, longest_s = 1_200, 900
    it = world(4, reservation_hard_us=hard_s * SECOND_US, min_runtime_us=10_000 * SECOND_US)
    ends: dict[str, int] = {}

    def flood() -> None:
        while len(it.state.pending) < 6:
            seconds = draw.randint(60, longest_s)
            job_id = it.submit(gpus=draw.choice((1, 2)), preemptible=preemptible, max_runtime_us=seconds * SECOND_US)
            ends[job_id] = seconds
            it.tick(0)

    def go_on() -> None:
        it.tick(5)
        for job_id, seconds in list(ends.items()):
            job = it.state.jobs[job_id]
            if job.attempt is not None and it.state.now_us - job.attempt.bound_at_us >= (seconds - 5) * SECOND_US:
                it.exits(job_id)
                del ends[job_id]
        flood()

    flood()
    for _ in range(60):
        go_on()
    gang = it.submit(gpus=12)
    waited_s = 0
    while not it.is_running(gang):
        go_on()
        waited_s += 5
        assert waited_s <= hard_s + longest_s


def test_a_gang_that_has_waited_until_hard_takes_from_its_own_level_and_though_shields_have_grown() -> None:
    it = world(4, reservation_hard_us=3_600 * SECOND_US, shield_step_us=10_000 * SECOND_US)
    running = [it.runs(gpus=8) for _ in range(2)]
    urgent = it.submit(gpus=8, priority=1)
    often = the(PreemptionOrdered, it.passes(1_860)).job_id
    it.exits(often, -15)
    it.tick()
    it.exits(urgent)
    it.tick()
    assert it.is_running(often)
    gang = it.submit(gpus=16)
    assert all_of(PreemptionOrdered, it.passes(3_540)) == []
    orders = all_of(PreemptionOrdered, it.passes(120))
    assert sorted((one.job_id, one.reason, one.claimant) for one in orders) == [
        (job_id, "service", gang) for job_id in sorted(running)
    ]


def test_it_takes_from_them_though_others_like_it_were_submitted_before() -> None:
    it = world(4, reservation_hard_us=3_600 * SECOND_US)
    before, other = it.runs(gpus=8), it.runs(gpus=8)
    gang = it.submit(gpus=8)
    it.passes(2_400)
    it.submit(gpus=8, priority=1, preemptible=False)
    evicted = the(PreemptionOrdered, it.passes(60)).job_id
    it.exits(evicted, -15)
    it.tick()
    assert all_of(PreemptionOrdered, it.passes(1_020)) == []
    order = the(PreemptionOrdered, it.passes(180))
    assert {evicted, order.job_id} == {before, other}
    assert (order.reason, order.claimant) == ("service", gang)


def test_it_takes_nothing_from_a_queue_within_its_guarantee() -> None:
    teams = tuple(Queue(path=path, quotas=(Quota(guarantee_milli=8_000),)) for path in ("a", "b"))
    it = world(4, queues=teams, reservation_hard_us=3_600 * SECOND_US)
    it.runs(gpus=8, queue="a")
    it.runs(gpus=8, queue="b", preemptible=False)
    it.submit(gpus=16, queue="b")
    assert all_of(PreemptionOrdered, it.passes(8_000)) == []


def test_what_a_gang_leaves_of_its_reserved_node_goes_at_once_to_who_was_tried_before_it() -> None:
    it = world(1)
    first = fixed(it, 4, 100)
    gang = it.submit(gpus=2)
    it.passes(120)
    assert gang in it.state.reserved
    sooner = it.submit(gpus=1, priority=1)
    it.exits(first)
    it.tick()
    assert it.is_running(gang)
    assert next_due_us(it.state) == it.state.now_us
    it.tick()
    assert it.is_running(sooner)


def test_no_node_is_reserved_that_could_not_feed_the_gang_even_if_it_were_empty() -> None:
    it = world(0)
    it.node("poor", 4, cpu_milli=4_000)
    it.node("rich", 4, cpu_milli=16_000)
    fixed(it, 4, 100, cpu_milli=1_000)
    fixed(it, 4, 200, cpu_milli=1_000)
    it.submit(gpus=2, cpu_milli=4_000)
    assert the(NodesReserved, it.passes(120)).node_ids == ("rich",)


@pytest.mark.parametrize("seed", range(6))
def test_backfill_that_ends_by_its_declared_maximum_never_delays_a_reservation(seed: int) -> None:
    """The gang starts no later with a flood of small jobs, each running to its very end, than without."""
    assert starts_after_s(seed, flood=True) <= starts_after_s(seed, flood=False) + 5


def starts_after_s(seed: int, *, flood: bool) -> int:
    """Return when a gang starts that waits for jobs that run to the end of their declared time."""
    draw = random.Random(seed)
    it = world(4, reservation_hard_us=10_000 * SECOND_US)
    for _ in range(6):
        fixed(it, draw.choice((1, 2)), draw.randint(4, 30))
    gang = it.submit(gpus=draw.choice((12, 16)))
    it.passes(130)
    assert it.is_running(gang) or gang in it.state.reserved
    backfilled, waited_s = 0, 0
    while not it.is_running(gang):
        if flood and len(it.state.pending) < 6:
            minutes = draw.randint(1, 20)
            it.submit(gpus=draw.choice((1, 2)), preemptible=False, max_runtime_us=minutes * 60 * SECOND_US)
        it.tick(5)
        waited_s += 5
        for job_id, job in sorted(it.state.jobs.items()):
            if job.attempt is not None and job.attempt.stop is not None and job.attempt.stop.reason == "max_runtime":
                it.exits(job_id, -15)
            elif job.attempt is not None and job_id != gang and job.attempt.bound_at_us == it.state.now_us:
                backfilled += 1
        assert waited_s <= 4_000
    assert flood == bool(backfilled)
    return waited_s
