"""No ping-pong: in random worlds nobody who evicted is evicted back for the same reason, nor too often."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gangline.events.decisions import PreemptionOrdered
from gangline.events.policy import Policy, Queue, Quota
from gangline.scheduler.shapes import is_gang
from tests.scheduler.world import SECOND_US, World, all_of

QUEUES = tuple(
    Queue(path=path, quotas=(Quota(guarantee_milli=guarantee_milli),))
    for path, guarantee_milli in (("a", 8_000), ("b", 2_000), ("c", 0))
)
POLICY = Policy(
    queues=QUEUES,
    rules=("quota", "fair_share", "levels", "consolidation", "reclaim", "priority", "service", "first_start", "batch"),
    levels_us=(60 * SECOND_US, 240 * SECOND_US),
    gang_levels_us=(60 * SECOND_US, 240 * SECOND_US),
    min_runtime_us=10 * SECOND_US,
    gang_min_runtime_us=10 * SECOND_US,
    reclaim_after_us=30 * SECOND_US,
    reclaim_min_runtime_us=10 * SECOND_US,
    first_start_after_us=60 * SECOND_US,
    first_start_min_runtime_us=60 * SECOND_US,
    batch_after_us=60 * SECOND_US,
    batch_gpus=4,
    room_interval_us=15 * SECOND_US,
    reclaim_interval_us=15 * SECOND_US,
    shield_step_us=0,
    preemptions_max=4,
    gang_preemptions_max=4,
    moves_max=3,
)


def lived_through(seed: int, policy: Policy, *, steps: int) -> tuple[World, list[PreemptionOrdered]]:
    """Return a world of jobs that never end by themselves, and all orders to give way, in their order."""
    draw = random.Random(seed)
    it = World(policy)
    for number in range(3):
        it.node(f"node-{number}", 4)
    it.tick()
    orders: list[PreemptionOrdered] = []
    for step in range(steps):
        if step < 10 and draw.random() < 0.8:
            it.submit(
                queue=draw.choice("abc"),
                gpus=draw.choice((1, 1, 2, 4, 8)),
                priority=draw.choice((0, 0, 0, 1)),
                preemptible=draw.random() < 0.9,
            )
        decided = it.passes(15)
        orders += all_of(PreemptionOrdered, decided)
        for order in all_of(PreemptionOrdered, decided):
            if it.is_running(order.job_id):
                it.exits(order.job_id, -15)
        orders += all_of(PreemptionOrdered, it.tick())
    return it, orders


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_nobody_who_evicted_is_evicted_back_for_the_same_reason_by_the_one_it_evicted(seed: int) -> None:
    _, orders = lived_through(seed, POLICY, steps=25)
    evicted: set[tuple[str, str, str]] = set()
    for order in orders:
        if order.claimant is not None and order.reason != "move":
            assert (order.claimant, order.job_id, order.reason) not in evicted, "it evicts back"
            evicted.add((order.job_id, order.claimant, order.reason))


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_nobody_is_evicted_more_often_than_policy_says_but_by_a_guarantee(seed: int) -> None:
    policy = replace(POLICY, rules=tuple(rule for rule in POLICY.rules if rule != "reclaim"))
    it, orders = lived_through(seed, policy, steps=25)
    for job_id, job in sorted(it.state.jobs.items()):
        mine = [order for order in orders if order.job_id == job_id]
        most = policy.gang_preemptions_max if is_gang(job.spec, 4) else policy.preemptions_max
        assert len(mine) <= most
        assert sum(order.reason == "move" for order in mine) <= policy.moves_max
