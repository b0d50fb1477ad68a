"""Room for claimants: who gives way by which rule, what is held, and how it ends."""

import pytest
from msgspec.structs import replace

from gangline.events.decisions import (
    AttemptPreempted,
    GangBound,
    JobRequeued,
    PreemptionOrdered,
    RoomHeld,
    RoomReleased,
)
from gangline.events.policy import RULES, Policy, Queue, Quota
from gangline.events.types import Decision, Role
from tests.scheduler.world import SECOND_US, World, all_of, rules_without, the

HOUR_S = 3600
LONG_S = 1_300
"""Run time from which a job is of the second level here."""
TEAMS = (
    Queue(path="a", quotas=(Quota(guarantee_milli=8_000),)),
    Queue(path="b", quotas=(Quota(guarantee_milli=8_000),)),
)
PAIRS = (
    Queue(path="a", quotas=(Quota(guarantee_milli=1_000),)),
    Queue(path="b", quotas=(Quota(guarantee_milli=1_000),)),
)


def world(
    nodes: int = 1, *, gpus: int = 8, queues: tuple[Queue, ...] = (Queue(path="default"),), **policy: object
) -> World:
    """Return nodes with a policy under which preemption is quick to see."""
    levels = (1_200 * SECOND_US, 12_000 * SECOND_US)
    made = World(replace(Policy(queues=queues, levels_us=levels), **policy))
    for number in range(nodes):
        made.node(f"node-{number}", gpus)
    made.tick()
    return made


def leaves(it: World, job_id: str) -> list[Decision]:
    """Let a victim save and exit; return what the next round decides."""
    it.exits(job_id, -15)
    return it.tick()


def test_a_job_of_a_lower_level_takes_the_place_of_one_of_a_higher_level_in_its_queue() -> None:
    it = world()
    old = it.runs(gpus=8)
    it.passes(LONG_S)
    new = it.submit(gpus=4)
    decided = it.passes(60)
    ordered = the(PreemptionOrdered, decided)
    assert (ordered.job_id, ordered.attempt, ordered.reason, ordered.claimant) == (old, 1, "service", new)
    held = the(RoomHeld, decided)
    assert (held.job_id, held.until_us, [len(share.gpus) for share in held.shares]) == (new, None, [4])
    decided = leaves(it, old)
    assert the(AttemptPreempted, decided).reason == "service"
    assert the(JobRequeued, decided).failures_in_row == 0
    bound = the(GangBound, decided)
    assert (bound.job_id, bound.shares) == (new, held.shares)
    assert not it.state.room


def test_what_the_claimant_does_not_need_is_free_for_others_at_once() -> None:
    it = world()
    old = it.runs(gpus=8)
    it.passes(LONG_S)
    new = it.submit(gpus=4)
    it.passes(60)
    other = it.submit(gpus=4)
    it.tick()
    leaves(it, old)
    assert it.is_running(new)
    assert it.is_running(other)


def test_of_those_served_enough_the_largest_gives_way_so_that_all_who_wait_can_start() -> None:
    it = world(2)
    small = [it.runs(gpus=2) for _ in range(4)]
    large = it.runs(gpus=8)
    it.passes(LONG_S)
    new = [it.submit(gpus=1)]
    assert the(PreemptionOrdered, it.passes(60)).job_id == large
    new += [it.submit(gpus=1) for _ in range(7)]
    it.tick()
    leaves(it, large)
    assert all(it.is_running(job_id) for job_id in (*small, *new))


def test_who_was_served_most_gives_way_to_who_was_served_least_and_of_equals_the_fewest() -> None:
    it = world(3)
    older = [it.runs(gpus=4), it.runs(gpus=4)]
    it.passes(12_000 - LONG_S)
    old = [it.runs(gpus=4), it.runs(gpus=4), it.runs(gpus=8)]
    it.passes(LONG_S)
    it.submit(gpus=4)
    assert the(PreemptionOrdered, it.passes(60)).job_id in older
    it.submit(gpus=8)
    assert the(PreemptionOrdered, it.passes(60)).job_id == old[-1]


def test_nothing_starts_on_what_is_held_before_the_claimant() -> None:
    it = world()
    old = it.runs(gpus=8)
    it.passes(LONG_S)
    new = it.submit(gpus=8)
    it.passes(60)
    late = it.submit(gpus=1)
    assert all_of(GangBound, it.passes(120)) == []
    leaves(it, old)
    assert it.is_running(new)
    assert not it.is_running(late)


def test_a_job_that_is_not_preemptible_or_too_young_gives_way_to_nobody() -> None:
    it = world(2)
    fixed = it.runs(gpus=8, preemptible=False)
    it.passes(LONG_S)
    young = it.runs(gpus=8)
    it.submit(gpus=8, priority=1)
    assert all_of(PreemptionOrdered, it.passes(500)) == []
    assert it.is_running(fixed)
    assert it.is_running(young)


def test_a_claimant_that_would_still_not_fit_evicts_nobody() -> None:
    it = world(2)
    it.runs(gpus=8)
    it.runs(gpus=8, preemptible=False)
    it.passes(LONG_S)
    it.submit(gpus=16)
    assert all_of(PreemptionOrdered, it.passes(HOUR_S)) == []


def test_a_higher_priority_takes_from_a_lower_one_inside_its_queue_and_from_no_other() -> None:
    it = world(2, queues=TEAMS)
    mine = it.runs(gpus=8, queue="a")
    it.runs(gpus=8, queue="b")
    it.passes(700)
    new = it.submit(gpus=8, queue="a", priority=1)
    ordered = the(PreemptionOrdered, it.passes(60))
    assert (ordered.job_id, ordered.reason, ordered.claimant) == (mine, "priority", new)


def test_a_queue_within_its_guarantee_takes_back_what_another_has_borrowed() -> None:
    it = world(2, queues=TEAMS)
    first, second = it.runs(gpus=8, queue="b"), it.runs(gpus=8, queue="b")
    it.passes(200)
    new = it.submit(gpus=8, queue="a")
    assert all_of(PreemptionOrdered, it.passes(200)) == []
    ordered = the(PreemptionOrdered, it.passes(120))
    assert ordered.job_id in {first, second}
    assert (ordered.reason, ordered.claimant) == ("reclaim", new)
    leaves(it, ordered.job_id)
    assert it.is_running(new)
    assert all_of(PreemptionOrdered, it.passes(600)) == [], "what is within its guarantee is not taken back"


def test_a_victim_counts_for_its_queue_no_longer_once_it_is_told_to_go() -> None:
    it = world(3, queues=(replace(TEAMS[0], quotas=(Quota(guarantee_milli=16_000),)), TEAMS[1]))
    for _ in range(3):
        it.runs(gpus=8, queue="b")
    it.passes(200)
    for _ in range(2):
        it.submit(gpus=8, queue="a")
    decided = it.passes(400)
    assert len(all_of(PreemptionOrdered, decided)) == 2
    uses = it.views.uses
    assert (uses.use["a", "H100"], uses.use["b", "H100"]) == (16_000, 8_000)


def test_a_hold_is_released_when_its_node_takes_nothing_new() -> None:
    it = world()
    it.runs(gpus=8)
    it.passes(LONG_S)
    new = it.submit(gpus=8)
    it.passes(60)
    assert new in it.state.room
    it.loses("node-0")
    assert the(RoomReleased, it.tick()).job_id == new
    assert not it.state.room


def test_a_small_job_is_moved_into_a_hole_to_open_a_node_for_a_larger_one() -> None:
    it = world(2)
    small = [it.runs(gpus=4), it.runs(gpus=4), it.runs(gpus=4)]
    it.exits(small[0])
    it.tick()
    it.passes(700)
    nodes = {node for job in small[1:] for node in it.nodes_of(job)}
    assert nodes == {"node-0", "node-1"}
    large = it.submit(gpus=8)
    decided = it.passes(60)
    ordered = the(PreemptionOrdered, decided)
    assert (ordered.reason, ordered.claimant) == ("move", large)
    decided = leaves(it, ordered.job_id)
    assert {bound.job_id for bound in all_of(GangBound, decided)} == {ordered.job_id, large}


def test_what_evicted_is_not_evicted_back_for_the_same_reason() -> None:
    it = world()
    old = it.runs(gpus=8)
    it.passes(LONG_S)
    new = it.submit(gpus=8)
    it.passes(60)
    leaves(it, old)
    assert it.is_running(new)
    assert all_of(PreemptionOrdered, it.passes(4 * HOUR_S)) == []


def test_who_was_evicted_often_enough_gives_way_only_to_a_guarantee() -> None:
    it = world(2, queues=TEAMS, preemptions_max=0)
    borrowers = [it.runs(gpus=8, queue="b"), it.runs(gpus=8, queue="b")]
    it.passes(LONG_S)
    it.submit(gpus=8, queue="b", priority=1)
    assert all_of(PreemptionOrdered, it.passes(HOUR_S)) == []
    guaranteed = it.submit(gpus=8, queue="a")
    ordered = the(PreemptionOrdered, it.passes(360))
    assert ordered.job_id in borrowers
    assert (ordered.reason, ordered.claimant) == ("reclaim", guaranteed)


def test_each_eviction_of_a_job_lengthens_the_time_before_its_next() -> None:
    it = world(shield_step_us=10_000 * SECOND_US)
    old = it.runs(gpus=8)
    it.passes(LONG_S)
    first = it.submit(gpus=8)
    it.passes(60)
    leaves(it, old)
    it.exits(first)
    it.tick()
    assert it.is_running(old)
    second = it.submit(gpus=8)
    assert all_of(PreemptionOrdered, it.passes(10_500)) == []
    assert the(PreemptionOrdered, it.passes(200)).claimant == second


def test_a_failure_renews_no_shield_but_who_starts_anew_runs_for_the_least_time_first() -> None:
    it = world(shield_step_us=10_000 * SECOND_US)
    old = it.runs(gpus=8)
    it.passes(LONG_S)
    first = it.submit(gpus=8)
    it.passes(60)
    leaves(it, old)
    it.exits(first)
    it.tick()
    it.passes(10_500)
    it.exits(old, 1)
    it.tick()
    assert it.is_running(old)
    second = it.submit(gpus=8)
    assert all_of(PreemptionOrdered, it.passes(540)) == []
    assert the(PreemptionOrdered, it.passes(120)).claimant == second


def test_a_gang_that_fails_again_and_again_gives_way_to_one_never_started_once_it_has_run_long_in_all() -> None:
    it = world(2, rules=("first_start", "recovering_first"))
    old = it.runs(gpus=16)
    new = it.submit(gpus=16)
    for _ in range(2):
        it.passes(2 * HOUR_S - 600)
        it.exits(old, 1)
        it.tick()
        assert it.is_running(old)
    assert all_of(PreemptionOrdered, it.passes(1_740)) == []  # it has run for 4 h in all, but is younger than 30 min
    ordered = the(PreemptionOrdered, it.passes(120))
    assert (ordered.job_id, ordered.claimant, ordered.reason) == (old, new, "first_start")


@pytest.mark.parametrize("rule_is_on", [True, False])
def test_a_gang_that_has_waited_long_is_protected_if_policy_says_so(*, rule_is_on: bool) -> None:
    rules = RULES if rule_is_on else rules_without("protection")
    it = world(2, rules=rules, protection_from_us=100 * SECOND_US)
    small = it.runs(gpus=8)
    gang = it.submit(gpus=16)
    it.passes(200)
    it.exits(small)
    it.tick()
    assert it.is_running(gang)
    it.passes(2_000)
    it.submit(gpus=16, priority=1)
    ordered = [one.job_id for one in all_of(PreemptionOrdered, it.passes(120))]
    assert ordered == ([] if rule_is_on else [gang])


def test_several_nodes_are_opened_for_a_gang_and_it_waits_until_every_rank_is_gone() -> None:
    it = world(4)
    old = [it.runs(gpus=8) for _ in range(4)]
    it.passes(LONG_S)
    new = it.submit(gpus=24)
    decided = it.passes(60)
    victims = [ordered.job_id for ordered in all_of(PreemptionOrdered, decided)]
    assert len(victims) == 3
    assert set(victims) < set(old)
    for job_id in victims[:2]:
        assert all_of(GangBound, leaves(it, job_id)) == []
    bound = the(GangBound, leaves(it, victims[2]))
    assert (bound.job_id, len(bound.shares)) == (new, 3)


@pytest.mark.parametrize("searches", [1, 2, 4])
def test_who_can_be_helped_is_helped_though_more_than_may_be_searched_for_stand_before_him_in_vain(
    searches: int,
) -> None:
    it = world(room_searches=searches)
    it.runs(gpus=4, preemptible=False)
    it.runs(gpus=4)
    it.passes(LONG_S)
    for gpus in (5, 6, 7, 8):
        it.submit(gpus=gpus, priority=gpus)
    last = it.submit(gpus=4)
    found = [it.passes(60) for _ in range(5)]
    assert [one.claimant for one in all_of(PreemptionOrdered, [each for decided in found for each in decided])] == [
        last
    ]


def test_who_stands_first_is_searched_for_at_each_interval() -> None:
    it = world(2, room_searches=2)
    it.runs(gpus=8, preemptible=False)
    it.runs(gpus=4, preemptible=False)
    it.runs(gpus=4)
    for gpus in (6, 7, 8):
        it.submit(gpus=gpus)
    it.passes(LONG_S)
    first = it.submit(gpus=4, priority=1)
    assert the(PreemptionOrdered, it.passes(60)).claimant == first


def test_a_job_gives_way_whose_roles_share_a_device() -> None:
    it = world(gpus=2, queues=PAIRS)
    it.runs(queue="a", gpus=1)
    shared = it.runs(queue="a", gpus=0, roles=(Role(name="actors", ranks=2, gpu_milli=400),))
    it.passes(200)
    new = it.submit(queue="b", gpus=1)
    ordered = the(PreemptionOrdered, it.passes(400))
    assert (ordered.job_id, ordered.reason, ordered.claimant) == (shared, "reclaim", new)


def test_a_guarantee_takes_back_what_roles_hold_on_several_devices_though_it_claims_one_node() -> None:
    it = world(2, gpus=1, queues=PAIRS)
    spread = it.runs(queue="a", gpus=0, roles=(Role(name="actors", ranks=2, gpu_milli=600),))
    it.passes(HOUR_S)
    new = it.submit(queue="b", gpus=1)
    ordered = the(PreemptionOrdered, it.passes(HOUR_S))
    assert (ordered.job_id, ordered.reason, ordered.claimant) == (spread, "reclaim", new)


def test_what_is_held_on_a_node_that_comes_back_with_other_gpus_is_let_go() -> None:
    it = world()
    it.runs(gpus=8)
    it.passes(LONG_S)
    it.submit(gpus=4, gpu_types=("H100",))
    the(RoomHeld, it.passes(60))
    it.node("node-0", 8, gpu_type="A100", boot_id="next", agent_id="another")
    assert "A100" in the(RoomReleased, it.tick()).cause
    assert not it.state.room


def test_a_gang_takes_back_the_cpus_that_its_ranks_need_beside_free_gpus() -> None:
    it = world(2, queues=TEAMS)
    hungry = it.runs(queue="b", gpus=1, cpu_milli=60_000)
    it.runs(queue="b", gpus=8)
    it.passes(200)
    new = it.submit(queue="a", gpus=8, nodes=2, cpu_milli=2_000)
    ordered = all_of(PreemptionOrdered, it.passes(400))
    assert {one.claimant for one in ordered} == {new}
    assert hungry in {one.job_id for one in ordered}


def test_nobody_goes_besides_a_job_that_frees_more_than_its_whole_devices() -> None:
    it = world(gpus=3)
    scattered = it.runs(gpus=1, roles=(Role(name="actors", ranks=1, gpu_milli=600),))
    it.runs(gpus=1)
    it.passes(LONG_S)
    it.submit(gpus=2)
    assert the(PreemptionOrdered, it.passes(60)).job_id == scattered


def with_reservations(**policy: object) -> World:
    """Return two nodes of 4 GPUs on which a gang of queue `b` reserves what is not for queue `a`."""
    return world(
        2,
        gpus=4,
        queues=(
            Queue(path="a", quotas=(Quota(guarantee_milli=6_000),)),
            Queue(path="b", quotas=(Quota(guarantee_milli=2_000),)),
        ),
        reservation_after_us=60 * SECOND_US,
        reservation_interval_us=60 * SECOND_US,
        **policy,
    )


def until_before(it: World, interval_us: int) -> None:
    """Let time pass until the next tick of 5 s is one at which the interval is over."""
    while (it.state.now_us + 5 * SECOND_US) % interval_us >= 5 * SECOND_US:
        it.tick(1)


def test_nobody_goes_for_one_who_fits_since_the_gang_whose_nodes_he_was_kept_from_has_started() -> None:
    it = with_reservations(reclaim_min_runtime_us=0)
    first = it.runs(gpus=4, queue="a", preemptible=False, max_runtime_us=6_000 * SECOND_US)
    gang = it.submit(gpus=6, nodes=2, queue="b")
    it.passes(120)
    assert it.state.reserved[gang].node_ids == ("node-0", "node-1")
    kept = it.submit(gpus=1, queue="a")
    it.passes(245)
    until_before(it, Policy().reclaim_interval_us)
    assert not it.is_running(kept)
    it.exits(first)
    decided = it.tick(5)
    assert it.is_running(gang)
    assert not all_of(PreemptionOrdered, decided)
    it.settle()
    assert it.is_running(kept)


def test_nobody_goes_for_one_who_fits_on_nodes_of_another_type_since_a_gang_has_started_there() -> None:
    it = with_reservations(min_runtime_us=0)
    it.node("other", 1, gpu_type="A100")
    it.tick()
    first = it.runs(gpus=4, queue="a", gpu_types=("H100",), preemptible=False, max_runtime_us=6_000 * SECOND_US)
    lower = it.runs(gpus=1, queue="a", gpu_types=("A100",))
    gang = it.submit(gpus=6, nodes=2, queue="b", gpu_types=("H100",))
    it.passes(245)
    assert it.state.reserved[gang].node_ids == ("node-0", "node-1")
    until_before(it, Policy().room_interval_us)
    higher = it.submit(gpus=1, queue="a", priority=1)
    it.exits(first)
    decided = it.tick(5)
    assert it.is_running(gang)
    assert not all_of(PreemptionOrdered, decided)
    it.settle()
    assert it.is_running(higher)
    assert it.is_running(lower)


def test_who_takes_several_nodes_of_his_type_is_a_gang_though_nodes_of_another_type_are_wider() -> None:
    it = world(1, min_runtime_us=0, gang_min_runtime_us=10 * LONG_S * SECOND_US)
    it.node("small-0", 2, gpu_type="A100")
    it.node("small-1", 2, gpu_type="A100")
    it.tick()
    gang = it.runs(gpus=4, gpu_types=("A100",))
    it.passes(LONG_S)
    it.submit(gpus=4, gpu_types=("A100",))
    assert not all_of(PreemptionOrdered, it.passes(600))
    assert it.is_running(gang)
