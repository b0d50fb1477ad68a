"""Queues are set and removed one by one; the whole tree has to hold together after each, and nothing else changes."""

import pytest

from gangline.events.control import RemoveQueue, SetQueue
from gangline.events.decisions import CommandAccepted, CommandRefused, JobAdmitted, JobRejected, PolicyRefused
from gangline.events.policy import RULES, Policy, Queue, Quota
from gangline.events.types import HOUR_US
from tests.scheduler.world import World, the

TREE = Policy(
    queues=(
        Queue(path="org", quotas=(Quota(guarantee_milli=8_000),)),
        Queue(path="org/a", quotas=(Quota(guarantee_milli=4_000),)),
        Queue(path="org/b"),
        Queue(path="default"),
    )
)


def world_of(policy: Policy = TREE) -> World:
    world = World(policy)
    world.node("n-1")
    world.tick()
    return world


def paths(world: World) -> list[str]:
    assert world.state.policy is not None
    return [queue.path for queue in world.state.policy.queues]


def test_a_queue_that_is_set_takes_jobs_from_the_next_round_on() -> None:
    world = world_of()
    world.command(SetQueue, queue=Queue(path="new"))
    the(CommandAccepted, world.tick())
    world.submit(queue="new")
    the(JobAdmitted, world.tick())


def test_setting_a_queue_changes_it_in_its_place_and_leaves_the_rest_of_the_policy() -> None:
    world = world_of()
    changed = Queue(path="org/a", quotas=(Quota(guarantee_milli=1_000),))
    world.command(SetQueue, queue=changed)
    world.tick()
    assert paths(world) == ["org", "org/a", "org/b", "default"]
    assert world.state.policy is not None
    assert world.state.policy.queues[1] == changed
    assert world.state.policy.rules == TREE.rules


def test_two_queues_set_in_one_round_are_both_there() -> None:
    world = world_of()
    world.command(SetQueue, queue=Queue(path="x"))
    world.command(SetQueue, queue=Queue(path="x/y"))
    world.command(RemoveQueue, path="org/b")
    world.tick()
    assert paths(world) == ["org", "org/a", "default", "x", "x/y"]


def test_a_removed_queue_takes_no_jobs() -> None:
    world = world_of()
    world.command(RemoveQueue, path="org/b")
    the(CommandAccepted, world.tick())
    world.submit(queue="org/b")
    assert the(JobRejected, world.tick()).key == "queue"


def test_a_queue_that_is_removed_in_a_round_takes_no_job_that_comes_after_that_in_it() -> None:
    world = world_of()
    world.command(RemoveQueue, path="org/b")
    job_id = world.submit(queue="org/b")
    decided = world.tick()
    the(CommandAccepted, decided)
    rejected = the(JobRejected, decided)
    assert (rejected.key, rejected.limit) == ("queue", "the queues are default, org, org/a")
    assert job_id not in world.state.jobs


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (Queue(path="nobody/x"), "'nobody/x' is an orphan: there is no queue 'nobody'"),
        (Queue(path="a//b"), "'a//b' is not a path"),
        (Queue(path="org/b", quotas=(Quota(guarantee_milli=5_000),)), "are guaranteed 9 GPUs together"),
        (Queue(path="org/b", quotas=(Quota(guarantee_milli=2_000, ceiling_milli=1_000),)), "below its guarantee of 2"),
        (Queue(path="org/b", quotas=(Quota(weight=0),)), "has the weight 0"),
        (Queue(path="x" * 201), "has 201 characters, but at most 200"),
    ],
)
def test_a_queue_that_does_not_fit_into_the_tree_is_refused(queue: Queue, text: str) -> None:
    world = world_of()
    world.command(SetQueue, queue=queue)
    refusal = the(CommandRefused, world.tick())
    assert text in refusal.message
    assert ": " in refusal.message, "it names no way out"
    assert world.state.policy == TREE


def test_a_queue_with_jobs_or_queues_in_it_is_not_removed() -> None:
    world = world_of()
    job_id = world.submit(queue="org/a")
    world.tick()
    for path, text in (
        ("org/a", f"while a job ({job_id}) that has not ended is in it"),
        ("org", "has 2 below it (org/a, org/b): remove those first"),
        ("nowhere", "there is no queue 'nowhere': the queues are default, org, org/a, org/b"),
    ):
        world.command(RemoveQueue, path=path)
        assert text in the(CommandRefused, world.tick()).message
    world.activate(Policy())
    assert f"queue 'org/a' would be gone while a job ({job_id})" in the(PolicyRefused, world.tick()).message
    assert world.state.policy == TREE


def test_the_last_queue_is_not_removed() -> None:
    world = world_of(Policy())
    world.command(RemoveQueue, path="default")
    assert "at least one queue" in the(CommandRefused, world.tick()).message


CONTRADICTIONS: dict[str, tuple[Policy, str]] = {
    "an unknown rule": (Policy(rules=("quota", "luck")), "'luck', which is no rule: the rules are quota, fair_share"),
    "a rule twice": (Policy(rules=("quota", "quota")), "'quota' 2 times"),
    "a negative time": (Policy(min_runtime_us=-1), "min_runtime is -0.000001s: name 0s or more"),
    "an interval of nothing": (Policy(room_interval_us=0), "room_interval is 0s: name a time above 0"),
    "parts above the whole": (Policy(worth_kept_ppm=1_000_001), "worth_kept_ppm is 1000001: name at most 1000000"),
    "spares that are all nodes": (Policy(spare_ppm=1_000_000), "spare_ppm is 1000000: name at most 999999"),
    "steps longer than the half-life": (
        Policy(usage_step_us=2 * HOUR_US, half_life_us=HOUR_US),
        "usage_step is 2h, above half_life, which is 1h",
    ),
    "a protection that ends before it begins": (
        Policy(protection_from_us=24 * HOUR_US, protection_until_us=HOUR_US),
        "protection_from is 1d, above protection_until, which is 1h",
    ),
    "a reservation that is hard before it is made": (
        Policy(reservation_after_us=HOUR_US, reservation_hard_us=HOUR_US - 1),
        "before they are reserved for it: lower the one or raise the other",
    ),
    "levels out of order": (Policy(levels_us=(HOUR_US, HOUR_US)), "levels has 1h after 1h"),
    "a time that overflows": (Policy(reclaim_after_us=1 << 61), "name at most"),
    "an orphan": (Policy(queues=(Queue(path="a/b"),)), "'a/b' is an orphan"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_it_refuses_a_policy_with(name: str) -> None:
    policy, text = CONTRADICTIONS[name]
    world = World()
    world.activate(policy)
    refusal = the(PolicyRefused, world.tick())
    assert text in refusal.message
    assert world.state.policy == Policy()


def test_every_number_of_a_policy_has_bounds_and_every_rule_is_known() -> None:
    from gangline.scheduler.rules.policy_checks import BOUNDS, check_policy

    numbers = {name for name in Policy.__struct_fields__ if isinstance(getattr(Policy(), name), int)} - {"head_blocks"}
    assert numbers == set(BOUNDS)
    assert check_policy(Policy(rules=RULES)) is None
