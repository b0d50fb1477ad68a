"""`after`: a job waits until others have succeeded; what can never succeed refuses it, or ends it with the cause."""

from gangline.events.decisions import JobAdmitted, JobEnded, JobRejected
from gangline.events.ids import job_id as job_id_of
from tests.scheduler.world import LOG_ID, World, all_of, the


def cluster() -> World:
    world = World()
    world.node("n-1", 8)
    return world


def test_a_job_starts_only_when_all_that_it_waits_for_have_succeeded() -> None:
    world = cluster()
    first, second = world.runs(), world.runs()
    job_id = world.submit(after=(first, second))
    world.tick()
    assert not world.is_running(job_id)
    world.exits(first)
    world.tick()
    assert not world.is_running(job_id)
    world.exits(second)
    world.tick()
    assert world.is_running(job_id)


def test_a_job_that_waits_for_what_has_succeeded_already_starts_at_once() -> None:
    world = cluster()
    first = world.runs()
    world.exits(first)
    world.tick()
    assert world.is_running(world.runs(after=(first,)))


def test_a_failed_attempt_of_what_it_waits_for_is_not_the_end() -> None:
    world = cluster()
    first = world.runs()
    job_id = world.submit(after=(first,))
    world.exits(first, 1)
    world.settle()
    world.exits(first)
    world.settle()
    assert world.is_running(job_id)


def test_a_dependency_that_fails_later_ends_the_job_with_the_cause() -> None:
    world = cluster()
    first = world.runs(retries=0)
    job_id = world.submit(after=(first,))
    world.tick()
    world.exits(first, 1)
    ended = all_of(JobEnded, world.tick())
    assert [(one.job_id, one.outcome) for one in ended] == [(first, "failed"), (job_id, "failed")]
    assert ended[1].cause == f"{first}, which it waited for, failed"


def test_a_whole_chain_ends_in_one_round_with_its_first() -> None:
    world = cluster()
    chain = [world.runs()]
    for _ in range(5):
        chain.append(world.submit(after=(chain[-1],)))
        world.tick()
    world.cancel(chain[0])
    world.tick()
    world.exits(chain[0], -15)
    ended = all_of(JobEnded, world.tick())
    assert [one.job_id for one in ended] == chain
    assert ended[1].cause == f"{chain[0]}, which it waited for, was cancelled"
    assert not world.state.jobs
    assert not any((world.state.waits, world.state.waited_for, world.state.broken))


def test_a_job_may_wait_for_an_array_and_an_array_for_a_job() -> None:
    world = cluster()
    first = world.runs()
    array_id = world.submit(array=2, after=(first,))
    last = world.submit(after=(array_id,))
    world.tick()
    assert not world.is_running(f"{array_id}.0")
    world.exits(first)
    world.tick()
    assert world.is_running(f"{array_id}.0")
    world.exits(f"{array_id}.0")
    world.tick()
    assert not world.is_running(last)
    world.exits(f"{array_id}.1")
    world.settle()
    assert world.is_running(last)


def test_a_job_may_wait_for_one_of_an_array() -> None:
    world = cluster()
    array_id = world.submit(array=2)
    world.tick()
    job_id = world.submit(after=(f"{array_id}.1",))
    world.tick()
    world.exits(f"{array_id}.1")
    world.settle()
    assert world.is_running(job_id)


def test_an_array_that_waits_in_vain_ends_as_a_whole_and_so_does_what_waits_for_it() -> None:
    world = cluster()
    first = world.runs(retries=0)
    array_id = world.submit(array=3, array_parallel=1, after=(first,))
    last = world.submit(after=(array_id,))
    world.tick()
    world.exits(first, 1)
    world.settle()
    assert not world.state.jobs
    assert [world.state.ended[one] for one in (first, array_id, f"{array_id}.2", last)] == ["failed"] * 4


def test_one_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    world = cluster()
    first, second = world.runs(), world.runs()
    job_id = world.submit(after=(first, second))
    world.tick()
    world.cancel(job_id)
    world.tick()
    assert not any((world.state.waits, world.state.waited_for))


def test_a_job_that_has_failed_is_not_waited_for() -> None:
    world = cluster()
    first = world.runs(retries=0)
    world.exits(first, 1)
    world.tick()
    world.submit(after=(first,))
    assert the(JobRejected, world.tick()).message == (
        f"after is {first}, but that job has failed: run it again first, and name the new job"
    )


def test_a_job_does_not_wait_for_itself() -> None:
    world = cluster()
    command_id = world.command_id()
    world.submit(command_id, after=(job_id_of(LOG_ID, command_id),))
    assert "that is this job itself" in the(JobRejected, world.tick()).message


def test_a_job_does_not_wait_for_one_that_is_submitted_later() -> None:
    world = cluster()
    early, late = world.command_id(), world.command_id()
    world.submit(early, after=(job_id_of(LOG_ID, late),))
    world.submit(late)
    decided = world.tick()
    assert "is submitted after this one: submit it first" in the(JobRejected, decided).message
    assert the(JobAdmitted, decided).job_id == job_id_of(LOG_ID, late)


def test_a_circle_is_named_as_one() -> None:
    world = cluster()
    commands = [world.command_id() for _ in range(3)]
    for number, command_id in enumerate(commands):
        world.submit(command_id, after=(job_id_of(LOG_ID, commands[(number + 1) % 3]),))
    messages = [refused.message for refused in all_of(JobRejected, world.tick())]
    assert len(messages) == 3
    assert "that job waits for this one in turn: break the circle" in messages[0]
