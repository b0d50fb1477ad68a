"""What a failed attempt leaves is held for the next one: what exactly, for how long, and at whose charge."""

from gangline.events.decisions import AttemptStopOrdered, GangBound, JobEnded, PreemptionOrdered, RoomHeld, RoomReleased
from gangline.events.policy import Policy, Queue, Quota
from gangline.simulator.fuzz.kept_views import differences
from tests.scheduler.world import SECOND_US, World, all_of, rules_without, the

HOLD_S = 300
POLICY = Policy(recovery_hold_us=HOLD_S * SECOND_US)


def cluster(nodes: int, policy: Policy = POLICY) -> World:
    world = World(policy)
    for number in range(1, nodes + 1):
        world.node(f"n-{number}", 8, pod=f"pod-{number // 4}")
    return world


def held_on(world: World, job_id: str) -> list[str]:
    room = world.state.room.get(job_id)
    return [] if room is None else [share.node_id for share in room.shares]


def lost_with_nothing_free() -> tuple[World, str]:
    """Return a world of which one of three nodes is lost, a gang's; another job, not preemptible, has the third."""
    world = cluster(3)
    gang = world.runs(gpus=16)
    world.runs(gpus=8, preemptible=False)
    world.loses("n-2")
    world.tick()
    return world, gang


def test_the_hold_is_decided_beside_the_order_to_stop() -> None:
    world = cluster(3)
    gang = world.runs(gpus=16)
    world.loses("n-2")
    decided = world.tick()
    held = the(RoomHeld, decided)
    assert decided.index(held) == decided.index(the(AttemptStopOrdered, decided)) + 1
    assert (held.job_id, held.reason, held.until_us) == (gang, "recovery", world.state.now_us + HOLD_S * SECOND_US)
    assert [(share.node_id, share.first_rank) for share in held.shares] == [("n-1", 0), ("n-3", 8)]


def test_the_next_attempt_binds_in_the_round_in_which_the_last_rank_is_reported_gone() -> None:
    world = cluster(3)
    gang = world.runs(gpus=16)
    world.loses("n-2")
    world.tick()
    other = world.submit(gpus=8)
    world.tick()
    assert not world.is_running(other)
    world.exits(gang, -15, node_id="n-1")
    assert the(GangBound, world.tick()).job_id == gang
    assert world.nodes_of(gang) == ["n-1", "n-3"]
    assert not world.state.room


def test_nothing_is_held_on_a_node_that_is_back_but_has_not_reported_the_lost_ranks_gone() -> None:
    world = cluster(2)
    gang = world.runs(gpus=8, nodes=2)
    world.loses("n-2")
    world.recovers("n-2")
    world.tick()
    assert held_on(world, gang) == ["n-1"]
    world.exits(gang, -15, node_id="n-1")
    assert not all_of(RoomReleased, world.tick())
    assert held_on(world, gang) == ["n-1"]
    world.left(gang, 1, "n-2")
    world.tick()
    assert world.nodes_of(gang) == ["n-1", "n-2"]


def test_a_claimant_within_its_guarantee_gets_nothing_of_what_is_held_until_that_lapses() -> None:
    world, gang = lost_with_nothing_free()
    world.exits(gang, -15, node_id="n-1")
    small = world.submit(gpus=8)
    world.passes(HOLD_S - 10)
    assert held_on(world, gang) == ["n-1"]
    assert not world.is_running(small)
    decided = world.passes(15)
    assert the(RoomReleased, decided).cause == "it was held long enough"
    assert world.is_running(small)


def test_indexes_from_which_a_hold_was_lent_are_those_built_anew() -> None:
    world, gang = lost_with_nothing_free()
    world.exits(gang, -15, node_id="n-1")
    world.passes(120)  # the hold is lent for each try, and each time room is made
    assert held_on(world, gang) == ["n-1"]
    assert not list(differences(world.views, world.state))


def test_a_queue_is_charged_for_what_is_held() -> None:
    tree = (
        Queue(path="a", quotas=(Quota(guarantee_milli=16_000, ceiling_milli=16_000),)),
        Queue(path="b", quotas=(Quota(guarantee_milli=0),)),
    )
    world = cluster(4, Policy(queues=tree, recovery_hold_us=HOLD_S * SECOND_US))
    gang = world.runs(gpus=16, queue="a")
    world.loses("n-2")
    world.tick()
    small = world.submit(gpus=1, queue="a")
    world.tick()
    assert not world.is_running(small), "16 are held, and 16 is the ceiling"
    world.exits(gang, -15, node_id="n-1")
    world.settle()
    assert world.is_running(gang)
    assert not world.is_running(small)


def test_a_gang_that_requires_one_pod_moves_to_another_where_its_own_has_no_node_left() -> None:
    world = cluster(5)  # n-1 to n-3 are in pod-0, n-4 and n-5 in pod-1
    gang = world.runs(gpus=16, topology_required="pod")
    assert world.nodes_of(gang) == ["n-4", "n-5"]
    world.loses("n-4")
    world.tick()
    assert held_on(world, gang) == ["n-1", "n-2"]


def test_a_fraction_starts_again_on_its_device() -> None:
    world = cluster(2)
    job_id = world.runs(gpu_milli=300)
    before = world.placement(job_id)
    world.exits(job_id, 1)
    world.settle()
    assert world.attempt(job_id).bound.attempt == 2
    assert world.placement(job_id) == before


def test_a_job_of_one_node_that_is_lost_has_nothing_to_hold_but_room_elsewhere() -> None:
    world = cluster(2)
    job_id = world.runs(gpus=4)
    world.loses("n-1")
    world.settle()
    assert world.nodes_of(job_id) == ["n-2"]


def test_nothing_is_held_for_one_who_gave_way_or_is_cancelled() -> None:
    world = cluster(2)
    job_id = world.runs(gpus=16)
    world.cancel(job_id)
    assert not all_of(RoomHeld, world.tick())


def test_nothing_is_held_where_a_node_could_not_launch_and_none_is_known_to_be_sick() -> None:
    world = cluster(2)
    job_id = world.runs(gpus=8)
    world.cannot_start(job_id, "no disk left", retryable=True, blame="node")
    assert not all_of(RoomHeld, world.tick())


def test_a_share_that_others_got_meanwhile_is_not_held() -> None:
    world = cluster(3)
    gang = world.runs(gpus=16)
    world.exits(gang, 0, node_id="n-2")
    world.tick()
    small = world.runs(gpus=8)
    world.runs(gpus=8)
    assert world.nodes_of(small) == ["n-2"]
    world.exits(gang, 1, node_id="n-1", rank=0, gone=False)
    world.tick()
    assert held_on(world, gang) == ["n-1"]


def test_a_hold_whose_job_has_failed_too_often_is_never_made() -> None:
    world = cluster(2)
    job_id = world.runs(gpus=16, retries=0)
    world.exits(job_id, 1, rank=0, gone=False)
    assert not all_of(RoomHeld, world.tick())
    world.gone(job_id)
    assert the(JobEnded, world.tick()).outcome == "failed"


def test_a_claim_that_evicted_for_a_part_that_was_held_takes_the_place_of_that() -> None:
    policy = Policy(recovery_hold_us=HOLD_S * SECOND_US, min_runtime_us=0, rules=rules_without("consolidation"))
    world = cluster(3, policy)
    gang = world.runs(gpus=16)
    small = world.runs(gpus=4)
    world.loses("n-2")
    world.tick()
    world.exits(gang, -15, node_id="n-1")
    decided = world.passes(65)
    order = the(PreemptionOrdered, decided)
    assert (order.job_id, order.reason, order.claimant) == (small, "recovery", gang)
    room = world.state.room[gang]
    assert [share.node_id for share in room.shares] == ["n-1", "n-3"]
    assert room.until_us is None
    world.exits(small, 0)
    world.settle()
    assert world.nodes_of(gang) == ["n-1", "n-3"]
