"""The next attempt waits for a checkpoint that is being stored, but not for ever."""

from gangline.events.policy import Policy
from tests.scheduler.world import SECOND_US, World


def lost_while_uploading(policy: Policy | None = None) -> tuple[World, str]:
    """Return a world in which rank 0's node was lost while its agent stored step 20, step 10 being committed."""
    world = World(policy or Policy())
    for number in range(1, 4):
        world.node(f"n-{number}", 8)
    job_id = world.runs(gpus=16)
    world.checkpoint(job_id, 10)
    world.tick()
    world.uploads(job_id, 20)
    world.loses("n-1")
    world.tick()
    world.exits(job_id, -15, node_id="n-2")
    world.settle()
    return world, job_id


def resumes_at(world: World, job_id: str) -> int:
    return world.attempt(job_id).bound.resume[0].step


def test_the_next_attempt_waits_for_an_upload_in_flight_and_resumes_from_it() -> None:
    world, job_id = lost_while_uploading()
    assert not world.is_running(job_id)
    world.passes(60)
    assert not world.is_running(job_id)
    world.checkpoint(job_id, 20)
    world.tick()
    assert resumes_at(world, job_id) == 20


def test_it_waits_no_longer_than_the_deadline() -> None:
    world, job_id = lost_while_uploading(Policy(upload_deadline_us=100 * SECOND_US))
    world.passes(95)
    assert not world.is_running(job_id)
    world.passes(10)
    assert resumes_at(world, job_id) == 10
    assert not world.state.timers


def test_nothing_is_waited_for_once_the_agent_of_rank_0_has_reported_its_ranks_gone() -> None:
    world = World()
    world.node("n-1", 8)
    job_id = world.runs(gpus=8)
    world.uploads(job_id, 20)
    world.exits(job_id, 1)
    world.settle()
    assert world.attempt(job_id).bound.attempt == 2


def test_an_older_checkpoint_stored_meanwhile_is_not_what_it_waits_for() -> None:
    world, job_id = lost_while_uploading()
    world.checkpoint(job_id, 15)
    world.tick()
    assert not world.is_running(job_id)
    world.checkpoint(job_id, 20)
    world.tick()
    assert resumes_at(world, job_id) == 20


def test_an_upload_reported_as_begun_after_it_was_stored_keeps_nobody() -> None:
    world, job_id = lost_while_uploading()
    world.checkpoint(job_id, 20)
    world.uploads(job_id, 20)
    world.tick()
    assert world.is_running(job_id)
    assert world.job(job_id).uploading is None


def test_a_job_cancelled_while_it_waits_leaves_no_timer() -> None:
    world, job_id = lost_while_uploading()
    world.cancel(job_id)
    world.tick()
    assert not world.state.jobs
    assert not world.state.timers
