"""Arrays: many jobs under one id, bounded, cancelled and ended as one."""

from gangline.events.control import HoldJob, ReleaseJob
from gangline.events.decisions import AnswerRepeated, JobEnded
from gangline.events.policy import Policy
from gangline.scheduler.arrays import members
from tests.scheduler.world import SECOND_US, World, all_of, the


def running(world: World) -> list[str]:
    return [job_id for job_id, job in sorted(world.state.jobs.items()) if job.attempt is not None]


def test_an_array_becomes_as_many_jobs_with_an_index_each() -> None:
    world = World()
    world.node("n-1", 8)
    array_id = world.submit(array=3)
    world.tick()
    assert running(world) == [f"{array_id}.{index}" for index in range(3)]
    assert [world.job(job_id).array_index for job_id in running(world)] == [0, 1, 2]


def test_only_as_many_as_its_bound_allows_run_at_a_time() -> None:
    world = World()
    world.node("n-1", 8)
    array_id = world.submit(array=5, array_parallel=2)
    world.tick()
    assert running(world) == [f"{array_id}.0", f"{array_id}.1"]
    world.exits(f"{array_id}.1")
    world.tick()
    assert running(world) == [f"{array_id}.0", f"{array_id}.2"]


def test_a_failed_attempt_keeps_its_place_among_those_that_may_run() -> None:
    world = World()
    world.node("n-1", 8)
    array_id = world.submit(array=3, array_parallel=1)
    world.tick()
    world.exits(f"{array_id}.0", 1)
    world.settle()
    assert running(world) == [f"{array_id}.0"]
    assert world.attempt(f"{array_id}.0").bound.attempt == 2


def test_one_that_is_cancelled_before_its_turn_frees_no_place() -> None:
    world = World()
    world.node("n-1", 8)
    array_id = world.submit(array=4, array_parallel=1)
    world.tick()
    world.cancel(f"{array_id}.1")
    world.settle()
    assert running(world) == [f"{array_id}.0"]
    world.exits(f"{array_id}.0")
    world.settle()
    assert running(world) == [f"{array_id}.2"]


def test_an_array_has_succeeded_when_all_of_it_has() -> None:
    world = World()
    world.node("n-1", 8)
    array_id = world.submit(array=2)
    world.tick()
    world.exits(f"{array_id}.0")
    assert [ended.job_id for ended in all_of(JobEnded, world.tick())] == [f"{array_id}.0"]
    world.exits(f"{array_id}.1")
    ended = all_of(JobEnded, world.tick())
    assert [(one.job_id, one.outcome) for one in ended] == [(f"{array_id}.1", "succeeded"), (array_id, "succeeded")]
    assert ended[1].cause == "all 2 of its jobs succeeded"
    assert world.state.ended[array_id] == "succeeded"
    assert not world.state.arrays


def test_an_array_has_failed_when_some_of_it_has_and_the_rest_ran_on() -> None:
    world = World()
    world.node("n-1", 8)
    array_id = world.submit(array=3, retries=0)
    world.tick()
    world.exits(f"{array_id}.1", 1)
    world.tick()
    assert running(world) == [f"{array_id}.0", f"{array_id}.2"]
    world.exits(f"{array_id}.0")
    world.exits(f"{array_id}.2")
    ended = all_of(JobEnded, world.tick())[-1]
    assert (ended.job_id, ended.outcome) == (array_id, "failed")
    assert ended.cause == "1 of its 3 jobs failed or were cancelled"


def test_cancelling_an_array_cancels_what_runs_and_what_waits() -> None:
    world = World()
    world.node("n-1", 2)
    array_id = world.submit(array=4)
    world.tick()
    world.cancel(array_id)
    world.tick()
    assert members(world.state, array_id) == [f"{array_id}.0", f"{array_id}.1"]
    for job_id in members(world.state, array_id):
        world.exits(job_id, -15)
    ended = all_of(JobEnded, world.tick())
    assert [(one.job_id, one.outcome) for one in ended][-1] == (array_id, "cancelled")
    assert not world.state.jobs


def test_an_array_of_ten_thousand_is_cancelled_over_as_many_rounds_as_it_takes() -> None:
    world = World()
    array_id = world.submit(array=10_000)
    world.tick()
    world.cancel(array_id)
    world.settle()
    assert not world.state.jobs
    assert world.state.ended[array_id] == "cancelled"
    assert len(world.state.ended) == 10_001


def test_an_array_is_forgotten_with_its_answer_and_leaves_nothing() -> None:
    world = World(Policy(answers_kept_us=60 * SECOND_US, ahead_limit_us=10 * SECOND_US))
    world.node("n-1", 8)
    array_id = world.submit(array=3)
    world.tick()
    for index in range(3):
        world.exits(f"{array_id}.{index}")
    world.tick()
    assert len(world.state.ended) == 4
    world.passes(70)
    assert not world.state.ended


def test_an_array_that_outlives_its_answer_goes_on_and_leaves_nothing() -> None:
    world = World(Policy(answers_kept_us=60 * SECOND_US, ahead_limit_us=10 * SECOND_US))
    world.node("n-1", 8)
    array_id = world.submit(array=3)
    world.tick()
    world.exits(f"{array_id}.0")
    world.passes(70)
    assert not world.state.ended
    world.exits(f"{array_id}.1")
    world.exits(f"{array_id}.2")
    world.tick()
    assert not world.state.ended
    assert not world.state.jobs
    assert not world.state.arrays


def test_submitting_the_same_command_again_makes_no_second_array() -> None:
    world = World()
    world.node("n-1", 8)
    command_id = world.command_id()
    world.submit(command_id, array=2)
    world.tick()
    world.submit(command_id, array=2)
    the(AnswerRepeated, world.tick())
    assert len(world.state.jobs) == 2


def bounded(*, held: bool = False) -> tuple[World, str]:
    world = World()
    world.node("n-1", 8)
    array_id = world.submit(array=4, array_parallel=2, held=held)
    world.tick()
    return world, array_id


def test_a_held_job_that_waits_takes_no_place_in_the_bound_of_its_array() -> None:
    world = World()
    array_id = world.submit(array=4, array_parallel=2)
    world.tick()
    world.command(HoldJob, job_id=f"{array_id}.0")
    world.tick()
    world.node("n-1", 8)
    world.settle()
    assert running(world) == [f"{array_id}.1", f"{array_id}.2"]


def test_a_held_job_that_runs_keeps_its_place_until_it_has_stopped() -> None:
    world, array_id = bounded()
    world.command(HoldJob, job_id=f"{array_id}.0")
    world.settle()
    assert running(world) == [f"{array_id}.0", f"{array_id}.1"]
    world.exits(f"{array_id}.0", -15)
    world.settle()
    assert running(world) == [f"{array_id}.1", f"{array_id}.2"]


def test_a_released_job_waits_for_a_place_and_is_the_first_to_have_it() -> None:
    world, array_id = bounded()
    world.command(HoldJob, job_id=f"{array_id}.0")
    world.settle()
    world.exits(f"{array_id}.0", -15)
    world.settle()
    world.command(ReleaseJob, job_id=f"{array_id}.0")
    world.settle()
    assert running(world) == [f"{array_id}.1", f"{array_id}.2"]
    world.exits(f"{array_id}.2")
    world.settle()
    assert running(world) == [f"{array_id}.0", f"{array_id}.1"]
    world.exits(f"{array_id}.0")
    world.settle()
    assert running(world) == [f"{array_id}.1", f"{array_id}.3"]


def test_a_job_that_is_released_alone_out_of_a_held_array_starts() -> None:
    world, array_id = bounded(held=True)
    assert running(world) == []
    world.command(ReleaseJob, job_id=f"{array_id}.3")
    world.settle()
    assert running(world) == [f"{array_id}.3"]
    world.command(ReleaseJob, job_id=array_id)
    world.settle()
    assert running(world) == [f"{array_id}.0", f"{array_id}.3"]


def test_an_array_that_is_held_and_released_as_a_whole_keeps_to_its_bound() -> None:
    world, array_id = bounded()
    world.command(HoldJob, job_id=array_id)
    world.settle()
    for job_id in running(world):
        world.exits(job_id, -15)
    world.settle()
    assert running(world) == []
    world.command(ReleaseJob, job_id=array_id)
    world.settle()
    assert running(world) == [f"{array_id}.0", f"{array_id}.1"]


def test_places_that_held_jobs_left_are_taken_when_these_are_released() -> None:
    world, array_id = bounded()
    for index in (2, 3):
        world.command(HoldJob, job_id=f"{array_id}.{index}")
    world.settle()
    for index in (0, 1):
        world.exits(f"{array_id}.{index}")
    world.settle()
    assert running(world) == []
    world.command(ReleaseJob, job_id=array_id)
    world.settle()
    assert running(world) == [f"{array_id}.2", f"{array_id}.3"]
