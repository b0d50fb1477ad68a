"""Users hold, release, retry and reprioritise jobs; each command is answered, and a refusal names the way out."""

import pytest

from gangline.events.control import HoldJob, ReleaseJob, ReprioritiseJob, RetryJob
from gangline.events.decisions import (
    AttemptPreempted,
    CommandAccepted,
    CommandRefused,
    GangBound,
    JobRequeued,
    PreemptionOrdered,
)
from gangline.events.types import Event
from tests.scheduler.world import World, all_of, the


def one_node(gpus: int = 8) -> World:
    world = World()
    world.node("n-1", gpus)
    world.tick()
    return world


def test_a_held_job_starts_when_it_is_released_and_not_before() -> None:
    world = one_node()
    job_id = world.submit()
    world.command(HoldJob, job_id=job_id, reason="wait for the data")
    the(CommandAccepted, world.tick())
    assert not world.is_running(job_id)
    world.tick()
    assert not world.is_running(job_id)
    world.command(ReleaseJob, job_id=job_id)
    world.tick()
    assert world.is_running(job_id)


def test_a_job_submitted_held_waits_for_its_release() -> None:
    world = one_node()
    job_id = world.submit(held=True)
    world.tick()
    assert not world.is_running(job_id)
    world.command(ReleaseJob, job_id=job_id)
    world.tick()
    assert world.is_running(job_id)


def test_a_running_job_that_is_held_saves_and_waits_even_if_it_is_not_preemptible() -> None:
    world = one_node()
    job_id = world.runs(preemptible=False, grace_us=7)
    world.command(HoldJob, job_id=job_id)
    order = the(PreemptionOrdered, world.tick())
    assert (order.reason, order.grace_us) == ("held", 7)
    world.exits(job_id, 0)
    decided = world.tick()
    assert the(AttemptPreempted, decided).cause == "it is held"
    the(JobRequeued, decided)
    assert not world.is_running(job_id)
    assert world.job(job_id).preemptions == 0, "a user cannot earn protection by holding its own job"
    world.command(ReleaseJob, job_id=job_id)
    assert the(GangBound, world.tick()).attempt == 2


def test_time_on_hold_is_no_waiting() -> None:
    world = one_node()
    job_id = world.submit()
    world.command(HoldJob, job_id=job_id)
    world.tick()
    world.passes(60)
    world.command(ReleaseJob, job_id=job_id)
    world.tick(0)
    assert world.is_running(job_id)
    assert world.job(job_id).waited_us == 0


def test_a_retry_begins_the_next_attempt_with_failures_forgiven() -> None:
    world = one_node()
    job_id = world.runs(retries=1)
    world.exits(job_id, 1)
    world.tick()
    assert world.job(job_id).failures_in_row == 1
    world.command(RetryJob, job_id=job_id)
    assert the(PreemptionOrdered, world.tick()).reason == "retried"
    world.exits(job_id, 1)
    decided = world.tick()
    assert the(AttemptPreempted, decided).cause == "a new attempt was asked for"
    assert the(GangBound, decided).attempt == 3
    assert world.job(job_id).failures_in_row == 0
    assert world.job(job_id).preemptions == 0


def test_a_higher_priority_goes_first() -> None:
    world = one_node(1)
    running = world.runs()
    first, second = world.submit(), world.submit()
    world.tick()
    world.command(ReprioritiseJob, job_id=second, priority=5)
    the(CommandAccepted, world.tick())
    world.exits(running)
    world.tick()
    assert world.is_running(second)
    assert not world.is_running(first)


def test_a_command_about_an_array_is_meant_for_each_of_its_jobs() -> None:
    world = one_node(2)
    array = world.submit(array=4)
    world.tick()
    world.command(HoldJob, job_id=array)
    decided = world.tick()
    assert len(all_of(PreemptionOrdered, decided)) == 2
    world.exits(f"{array}.0", 0)
    world.exits(f"{array}.1", 0)
    world.tick()
    assert not any(world.is_running(f"{array}.{index}") for index in range(4))
    world.command(ReprioritiseJob, job_id=f"{array}.3", priority=1)
    world.command(ReleaseJob, job_id=array)
    world.tick()
    assert world.is_running(f"{array}.3")


REFUSED: dict[str, tuple[type[Event], dict[str, object], str]] = {
    "a hold of an unknown job": (HoldJob, {"job_id": "job-x"}, "there is no job 'job-x' that could be held"),
    "a release of an unknown job": (ReleaseJob, {"job_id": "job-x"}, "there is no job 'job-x' that could be released"),
    "a retry of an unknown job": (RetryJob, {"job_id": "job-x"}, "there is no job 'job-x' that could be retried"),
    "a release of a job that is not held": (ReleaseJob, {}, "is not held: `gangline why"),
    "a priority beyond the bounds": (ReprioritiseJob, {"priority": 1_000_001}, "it has to be -1000000 to 1000000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses(name: str) -> None:
    kind, fields, text = REFUSED[name]
    world = one_node()
    job_id = world.runs()
    world.command(kind, **{"job_id": job_id, **fields})
    assert text in the(CommandRefused, world.tick()).message


def test_what_has_ended_is_cloned_rather_than_changed() -> None:
    world = one_node()
    job_id = world.runs()
    world.exits(job_id)
    world.tick()
    for kind in (HoldJob, ReleaseJob, RetryJob):
        world.command(kind, job_id=job_id)
        message = the(CommandRefused, world.tick()).message
        assert "has already ended (succeeded)" in message
        assert f"`gangline job clone {job_id}`" in message


def test_a_job_that_is_held_or_cancelled_already_is_not_held() -> None:
    world = one_node()
    job_id = world.runs()
    world.command(HoldJob, job_id=job_id)
    world.command(HoldJob, job_id=job_id)
    assert "is held already" in the(CommandRefused, world.tick()).message
    world.cancel(job_id)
    world.tick()
    world.command(ReleaseJob, job_id=job_id)
    assert "is cancelled" in the(CommandRefused, world.tick()).message
