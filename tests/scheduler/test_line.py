"""The line of groups: what it picks from columns is what the order of turns says."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.events.policy import RULES, Policy, Queue, Quota
from gangline.scheduler.line import Line
from gangline.scheduler.turns import turn_of
from tests.scheduler.world import SECOND_US, World

LEAVES = ("a/x", "a/y", "b", "c/z/u")
QUEUES = (
    Queue(path="a", quotas=(Quota(guarantee_milli=6_000, weight=2),)),
    Queue(path="a/x", quotas=(Quota(guarantee_milli=1_000),)),
    Queue(path="a/y"),
    Queue(path="b", quotas=(Quota(guarantee_milli=3_000, weight=3),)),
    Queue(path="c"),
    Queue(path="c/z"),
    Queue(path="c/z/u"),
)
ASKS = st.tuples(
    st.sampled_from(LEAVES),
    st.sampled_from((1, 2, 4, 8, 16)),
    st.integers(0, 1),
    st.booleans(),
    st.sampled_from(((), ("A100",), ("H100",))),
)
Asks = Sequence[tuple[str, int, int, bool, tuple[str, ...]]]


def submitted(world: World, asks: Asks) -> None:
    for queue, gpus, priority, preemptible, gpu_types in asks:
        world.submit(queue=queue, gpus=gpus, priority=priority, preemptible=preemptible, gpu_types=gpu_types)


@settings(max_examples=60, deadline=None)
@given(
    first=st.lists(ASKS, max_size=6),
    then=st.lists(ASKS, max_size=20),
    without=st.sampled_from(("", "quota", "fair_share")),
)
def test_groups_are_picked_in_the_order_of_their_turns(first: Asks, then: Asks, without: str) -> None:
    rules = tuple(rule for rule in RULES if rule != without)
    policy = Policy(queues=QUEUES, rules=rules, first_start_after_us=10 * SECOND_US, half_life_us=60 * SECOND_US)
    world = World(policy)
    for name, gpu_type in (("n-1", "H100"), ("n-2", "H100"), ("n-3", "A100")):
        world.node(name, 8, gpu_type=gpu_type)
    submitted(world, first)
    world.tick()
    world.passes(10)
    submitted(world, then)
    world.tick()
    world.views.sync(world.state)
    groups = world.views.pending.groups
    if not groups:
        return
    turns = {group: turn_of(world.state, policy, world.views, group, groups[group][0]) for group in groups}
    line = Line(world.state, policy, world.views, list(groups))
    picked = []
    while (found := line.pick()) is not None:
        picked.append(found[0])
        line.close(found[0])
    assert picked == sorted(groups, key=lambda group: turns[group])
