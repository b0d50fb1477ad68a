"""Storage under pressure holds back new jobs that would write much, and nobody else."""

from gangline.events.control import StoragePressureChanged
from gangline.events.policy import Policy
from tests.scheduler.world import World, rules_without

HEAVY = 2 << 40


def pressure(world: World, store: str, *, pressed: bool = True) -> None:
    world.append(StoragePressureChanged(meta=world.meta(), store=store, pressed=pressed, used_ppm=960_000))


def cluster(policy: Policy | None = None) -> World:
    world = World(policy or Policy())
    world.node("n-1", 8)
    return world


def test_a_new_job_that_would_write_much_waits_until_the_pressure_is_over() -> None:
    world = cluster()
    pressure(world, "file:///shared")
    heavy = world.submit(data_bytes=HEAVY)
    light = world.submit(data_bytes=1)
    world.tick()
    assert not world.is_running(heavy)
    assert world.is_running(light)
    pressure(world, "file:///shared", pressed=False)
    world.tick()
    assert world.is_running(heavy)


def test_pressure_that_comes_while_a_job_waits_holds_it_back_too() -> None:
    world = cluster()
    first = world.runs(gpus=8)
    heavy = world.submit(data_bytes=HEAVY)
    world.tick()
    pressure(world, "file:///shared")
    world.exits(first)
    world.tick()
    assert not world.is_running(heavy)


def test_a_job_that_has_run_before_goes_on() -> None:
    world = cluster()
    heavy = world.runs(data_bytes=HEAVY)
    pressure(world, "file:///shared")
    world.exits(heavy, 1)
    world.settle()
    assert world.attempt(heavy).bound.attempt == 2


def test_pressure_on_another_store_than_the_jobs_own_does_not_matter() -> None:
    world = cluster()
    pressure(world, "file:///shared")
    elsewhere = world.submit(data_bytes=HEAVY, checkpoints="file:///shared-2/runs")
    there = world.submit(data_bytes=HEAVY, checkpoints="file:///shared/runs")
    world.tick()
    assert world.is_running(elsewhere)
    assert not world.is_running(there)


def test_one_of_two_stores_that_recovers_frees_only_its_own() -> None:
    world = cluster()
    pressure(world, "s3://a")
    pressure(world, "s3://b")
    jobs = [world.submit(data_bytes=HEAVY, checkpoints=f"s3://{store}/x") for store in "ab"]
    world.tick()
    pressure(world, "s3://a", pressed=False)
    world.tick()
    assert [world.is_running(job_id) for job_id in jobs] == [True, False]


def test_a_policy_without_the_rule_holds_nobody_back() -> None:
    world = cluster(Policy(rules=rules_without("storage")))
    pressure(world, "file:///shared")
    assert world.runs(data_bytes=HEAVY)


def test_a_policy_that_counts_as_heavy_what_was_light_holds_back_who_waits() -> None:
    world = cluster()
    pressure(world, "file:///shared")
    first = world.runs(gpus=8)
    waits = world.submit(data_bytes=10)
    world.tick()
    world.activate(Policy(data_heavy_bytes=10))
    world.tick()
    world.exits(first)
    world.settle()
    assert not world.is_running(waits)
    world.activate(Policy())
    world.settle()
    assert world.is_running(waits)
