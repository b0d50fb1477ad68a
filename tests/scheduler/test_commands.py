"""Every command is answered once, the first answer is given again, and in time both are forgotten."""

from msgspec.structs import replace

from gangline.events.decisions import (
    AnswerRepeated,
    CancelAccepted,
    CommandExpired,
    CommandRefused,
    GangBound,
    InputQuarantined,
    JobAdmitted,
    JobRejected,
)
from gangline.events.policy import Policy
from gangline.scheduler.canonical import to_bytes
from gangline.scheduler.decide import next_due_us
from gangline.scheduler.reducers.clock import MAX_FORGOTTEN_PER_TICK
from tests.scheduler.world import SECOND_US, World, all_of, the

HOUR_US = 3600 * SECOND_US
WEEK_US = 7 * 24 * HOUR_US
SHORT = Policy(answers_kept_us=60 * SECOND_US, ahead_limit_us=30 * SECOND_US)


def node_of(world: World) -> World:
    world.node("n-1")
    world.tick()
    return world


def test_a_repeated_command_gets_the_first_answer() -> None:
    world = node_of(World())
    command_id = world.command_id()
    world.submit(command_id)
    admitted = the(JobAdmitted, world.tick())
    world.submit(command_id)
    repeated = the(AnswerRepeated, world.tick())
    assert repeated.first_control_index == admitted.control_index
    assert len(world.state.jobs) == 1


def test_a_command_twice_in_one_round_is_answered_once() -> None:
    world = node_of(World())
    command_id = world.command_id()
    world.submit(command_id)
    world.submit(command_id)
    decided = world.tick()
    first, again = the(JobAdmitted, decided), the(AnswerRepeated, decided)
    assert again.first_control_index == first.control_index
    the(GangBound, decided)


def test_a_rejection_stands_too() -> None:
    world = node_of(World())
    command_id = world.command_id()
    world.submit(command_id, gpus=99)
    the(JobRejected, world.tick())
    world.submit(command_id, gpus=1)
    the(AnswerRepeated, world.tick())


def test_an_answer_is_given_again_for_a_week_and_then_the_command_has_expired() -> None:
    # The core's clock needs 5 s ticks for this; the answer's own time is moved instead.
    world = node_of(World())
    command_id = world.command_id()
    job_id = world.submit(command_id)
    world.tick()
    world.exits(job_id)
    world.tick()
    assert world.state.policy is not None
    assert world.state.policy.answers_kept_us == WEEK_US
    due_us = next_due_us(world.state)
    assert due_us is not None
    world.state = replace(world.state, now_us=due_us + 2 * SECOND_US)
    world.submit(command_id)
    assert the(CommandExpired, world.tick()).command_id == command_id
    assert not all_of(JobAdmitted, world.decided)


def test_answers_and_ended_jobs_are_forgotten_and_the_state_is_as_small_as_before() -> None:
    world = node_of(World(SHORT))
    world.passes(120)
    size = len(to_bytes(world.state))
    jobs = [world.submit() for _ in range(8)]
    world.submit(gpus=99)
    world.tick()
    for job_id in jobs:
        world.exits(job_id)
    world.tick()
    assert len(world.state.ended) == 8
    world.passes(120)
    assert not world.state.answers
    assert not world.state.ended
    assert not world.state.answer_order
    # Only numbers are left to grow, and each but by some bytes.
    assert len(to_bytes(world.state)) <= size + 16


def test_what_was_forgotten_raises_what_has_expired() -> None:
    world = node_of(World(SHORT))
    old = world.command_id()
    world.passes(10)
    world.submit()
    world.tick()
    world.passes(90)
    world.submit(old)
    the(CommandExpired, world.tick())
    assert not world.state.answers, "an expired command leaves nothing"


def test_a_job_that_outlives_its_answer_goes_on_and_leaves_nothing() -> None:
    world = node_of(World(SHORT))
    job_id = world.submit()
    world.tick()
    world.passes(120)
    assert world.is_running(job_id)
    assert world.job(job_id).answer_forgotten
    world.exits(job_id)
    world.tick()
    assert job_id not in world.state.ended
    world.cancel(job_id)
    assert "no job" in the(CommandRefused, world.tick()).message


def test_an_answer_is_forgotten_in_bounded_steps() -> None:
    world = World(SHORT)
    for _ in range(MAX_FORGOTTEN_PER_TICK + 10):
        world.cancel("job-unknown")
    world.tick()
    world.passes(60)
    kept = len(world.state.answers)
    assert 0 < kept <= 11
    world.settle()
    assert not world.state.answers


def test_a_command_from_the_future_is_refused() -> None:
    world = node_of(World())
    world.submit(world.command_id(ahead_us=HOUR_US + 2 * SECOND_US))
    assert "ahead of the scheduler's clock" in the(CommandRefused, world.tick()).message
    soon = world.submit(world.command_id(ahead_us=HOUR_US - 2 * SECOND_US))
    assert the(JobAdmitted, world.tick()).job_id == soon


def test_forgetting_a_command_from_the_future_expires_nothing_of_the_present() -> None:
    world = node_of(World(SHORT))
    world.submit(world.command_id(ahead_us=10 * HOUR_US))
    the(CommandRefused, world.tick())
    world.passes(90)
    world.submit()
    the(JobAdmitted, world.tick())


def test_a_command_without_an_id_is_quarantined() -> None:
    world = node_of(World())
    from gangline.events.control import SubmitJob

    index = world.append(SubmitJob(meta=world.meta(), spec=world.spec()))
    assert the(InputQuarantined, world.tick()).control_index == index


def test_cancelling_is_answered_again_too() -> None:
    world = node_of(World())
    job_id = world.runs()
    command_id = world.command_id()
    world.cancel(job_id, command_id)
    the(CancelAccepted, world.tick())
    world.cancel(job_id, command_id)
    the(AnswerRepeated, world.tick())
