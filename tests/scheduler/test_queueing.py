"""The order in which jobs start, and what becomes of them: cancelled, stopped, requeued, ended."""

import pytest

from gangline.events.decisions import (
    AttemptEnded,
    AttemptStopOrdered,
    CancelAccepted,
    CommandRefused,
    GangBound,
    JobEnded,
    JobRequeued,
)
from gangline.events.policy import Policy
from tests.scheduler.world import SECOND_US, World, all_of, the


def small() -> World:
    """Two nodes of two GPUs."""
    world = World()
    world.node("n-1", 2)
    world.node("n-2", 2)
    return world


def fails(world: World, job_id: str) -> None:
    """Let rank 0 die, the rest be stopped, and the round that follows."""
    world.exits(job_id, 1, rank=0, gone=False)
    world.tick()
    world.gone(job_id)
    world.tick()


# --- order ---


def test_jobs_start_in_the_order_of_submission() -> None:
    world = small()
    jobs = [world.submit(gpus=2) for _ in range(4)]
    world.tick()
    assert [world.is_running(job_id) for job_id in jobs] == [True, True, False, False]
    world.exits(jobs[1])
    world.tick()
    assert world.is_running(jobs[2])


def test_a_higher_priority_starts_before_an_earlier_submission() -> None:
    world = small()
    running = world.runs(gpus=4)
    low, high = world.submit(gpus=4), world.submit(gpus=4, priority=1)
    world.tick()
    world.exits(running)
    world.tick()
    assert world.is_running(high)
    assert not world.is_running(low)


def test_what_does_not_fit_is_skipped() -> None:
    world = small()
    world.runs(gpus=2)
    large, little = world.submit(gpus=4), world.submit(gpus=2)
    world.tick()
    assert not world.is_running(large)
    assert world.is_running(little)


def test_a_job_starts_when_a_node_registers() -> None:
    world = World()
    job_id = world.submit(gpus=2)
    world.tick()
    assert not world.is_running(job_id)
    world.node("n-1", 2)
    world.tick()
    assert world.is_running(job_id)


def test_a_requeued_job_keeps_its_place_and_counts_its_attempts() -> None:
    world = small()
    first = world.runs(gpus=4)
    second = world.submit(gpus=4)
    world.tick()
    world.exits(first, 1, rank=0, gone=False)
    world.tick()
    world.gone(first)
    decided = world.tick()
    assert the(JobRequeued, decided).failures_in_row == 1
    assert the(GangBound, decided).job_id == first
    assert world.attempt(first).bound.attempt == 2
    assert not world.is_running(second)


def test_a_recovering_gang_goes_before_a_higher_priority() -> None:
    world = small()
    first = world.runs(gpus=4)
    world.submit(gpus=4, priority=9)
    fails(world, first)
    assert world.is_running(first)


# --- cancelling ---


def test_a_pending_job_is_cancelled_at_once() -> None:
    world = small()
    world.runs(gpus=4)
    job_id = world.submit(gpus=1)
    world.tick()
    world.cancel(job_id)
    decided = world.tick()
    assert the(CancelAccepted, decided).job_id == job_id
    assert the(JobEnded, decided).outcome == "cancelled"
    assert job_id not in world.state.jobs
    assert job_id not in world.state.pending


def test_a_job_is_cancelled_in_the_round_that_admits_it() -> None:
    world = small()
    job_id = world.submit(gpus=1)
    world.cancel(job_id)
    decided = world.tick()
    assert the(JobEnded, decided).cause == "cancelled before it could start"
    assert not all_of(GangBound, decided)


def test_a_running_job_is_stopped_and_ends_when_its_ranks_are_gone() -> None:
    world = small()
    job_id = world.runs(gpus=4, grace_us=5)
    world.cancel(job_id)
    order = the(AttemptStopOrdered, world.tick())
    assert (order.reason, order.grace_us) == ("cancelled", 5)
    world.exits(job_id, -15, node_id="n-1")
    assert world.tick() == []
    world.exits(job_id, -15, node_id="n-2")
    decided = world.tick()
    assert the(AttemptEnded, decided).outcome == "cancelled"
    assert the(JobEnded, decided).outcome == "cancelled"


def test_a_failed_attempt_of_a_cancelled_job_is_not_requeued() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.exits(job_id, 1, rank=0, gone=False)
    world.tick()
    world.cancel(job_id)
    world.tick()
    world.gone(job_id)
    assert the(JobEnded, world.tick()).outcome == "cancelled"


def test_a_job_that_succeeds_before_it_is_stopped_has_succeeded() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.cancel(job_id)
    world.exits(job_id, 0)
    assert the(JobEnded, world.tick()).outcome == "succeeded"


def test_an_ended_job_cannot_be_cancelled() -> None:
    world = small()
    job_id = world.runs()
    world.exits(job_id)
    world.tick()
    world.cancel(job_id)
    assert "already ended (succeeded)" in the(CommandRefused, world.tick()).message


def test_an_unknown_job_cannot_be_cancelled() -> None:
    world = small()
    world.cancel("job-unknown")
    assert "no job 'job-unknown'" in the(CommandRefused, world.tick()).message


def test_cancelling_twice_stops_once() -> None:
    world = small()
    job_id = world.runs()
    world.cancel(job_id)
    world.cancel(job_id)
    decided = world.tick()
    assert len(all_of(CancelAccepted, decided)) == 2
    the(AttemptStopOrdered, decided)


# --- failing ---


def test_a_lost_rank_stops_the_whole_gang() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.exits(job_id, -9, rank=1, gone=False)
    order = the(AttemptStopOrdered, world.tick())
    assert order.reason == "rank_failed"
    assert world.attempt(job_id).failure == "rank 1 on node n-1 was killed by signal 9 (SIGKILL)"
    world.gone(job_id, "n-1")
    assert all_of(JobRequeued, world.tick()) == []
    assert world.free("n-1") == 2, "what is reported gone is free, though the other node's share is not gone yet"
    assert world.free("n-2") == 0
    world.gone(job_id, "n-2")
    assert the(JobRequeued, world.tick()).cause == "rank 1 on node n-1 was killed by signal 9 (SIGKILL)"


def test_ranks_that_are_gone_without_an_exit_code_were_lost() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.gone(job_id, "n-2")
    the(AttemptStopOrdered, world.tick())
    assert world.attempt(job_id).failure == "ranks on node n-2 were lost"


def test_a_gang_whose_ranks_end_one_after_the_other_with_code_0_succeeds() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    for rank in range(4):
        world.exits(job_id, 0, rank=rank, gone=rank in {1, 3})
    decided = world.tick()
    assert the(AttemptEnded, decided).outcome == "succeeded"
    assert the(JobEnded, decided).attempts == 1


def test_it_is_not_over_before_every_share_is_gone() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.exits(job_id, 0, gone=False)
    assert world.tick() == []
    world.gone(job_id)
    assert the(JobEnded, world.tick()).outcome == "succeeded"


@pytest.mark.parametrize(("of_job", "of_policy", "attempts"), [(None, 3, 4), (None, 0, 1), (0, 3, 1), (1, 3, 2)])
def test_a_job_that_keeps_failing_ends_after_its_retries(of_job: int | None, of_policy: int, attempts: int) -> None:
    world = World(Policy(retries=of_policy))
    world.node("n-1")
    job_id = world.runs(retries=of_job)
    for _ in range(attempts - 1):
        fails(world, job_id)
        assert world.is_running(job_id)
    fails(world, job_id)
    ended = the(JobEnded, world.decided)
    assert (ended.outcome, ended.attempts) == ("failed", attempts)
    assert f"failure {attempts} in a row without a newer committed checkpoint" in ended.cause
    assert world.free("n-1") == 8


def test_a_newer_committed_checkpoint_gives_the_retries_back() -> None:
    world = small()
    job_id = world.runs(retries=1)
    for step in range(1, 6):
        world.checkpoint(job_id, step)
        fails(world, job_id)
        assert world.job(job_id).failures_in_row == 1
    fails(world, job_id)
    assert the(JobEnded, world.decided).attempts == 6


def test_the_same_steps_committed_again_are_no_progress() -> None:
    world = small()
    job_id = world.runs(retries=2)
    for _ in range(3):
        world.checkpoint(job_id, 100)
        fails(world, job_id)
    assert the(JobEnded, world.decided).attempts == 3


def test_a_command_that_cannot_start_ends_the_job_at_once() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.cannot_start(job_id, "no such program: trian.py", node_id="n-2")
    the(AttemptStopOrdered, world.tick())
    world.gone(job_id, "n-1")
    ended = the(JobEnded, world.tick())
    assert (ended.outcome, ended.cause, ended.attempts) == ("failed", "no such program: trian.py", 1)


def test_why_it_cannot_start_is_told_even_if_another_rank_died_first() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.exits(job_id, 1, node_id="n-1")
    world.tick()
    world.cannot_start(job_id, "no such program: trian.py", node_id="n-2")
    assert the(JobEnded, world.tick()).cause == "no such program: trian.py"


def test_a_start_that_may_go_better_elsewhere_is_tried_again() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.cannot_start(job_id, "the bundle could not be fetched", retryable=True)
    assert the(JobRequeued, world.tick()).cause == "the bundle could not be fetched"


def test_an_endless_reason_is_cut() -> None:
    world = small()
    job_id = world.runs()
    world.cannot_start(job_id, "x" * 200_000)
    assert len(the(JobEnded, world.tick()).cause) <= 1_000


# --- time ---


def test_an_attempt_is_stopped_after_its_max_runtime_and_the_job_failed() -> None:
    world = small()
    job_id = world.runs(gpus=4, max_runtime_us=10 * SECOND_US)
    assert not all_of(AttemptStopOrdered, world.passes(5))
    assert the(AttemptStopOrdered, world.passes(5)).reason == "max_runtime"
    world.exits(job_id, 0)
    ended = the(JobEnded, world.tick())
    assert (ended.outcome, ended.cause) == ("failed", "it ran for its max_runtime of 10 s")


def test_every_attempt_has_its_own_max_runtime() -> None:
    world = small()
    job_id = world.runs(max_runtime_us=10 * SECOND_US)
    world.passes(5)
    fails(world, job_id)
    assert not all_of(AttemptStopOrdered, world.passes(5))
    assert the(AttemptStopOrdered, world.passes(5)).attempt == 2


def test_a_job_that_ends_at_the_tick_of_its_max_runtime_has_succeeded() -> None:
    world = small()
    job_id = world.runs(max_runtime_us=5 * SECOND_US)
    world.exits(job_id, 0)
    assert the(JobEnded, world.tick(5)).outcome == "succeeded"


def test_after_the_first_deadline_the_others_still_come() -> None:
    world = small()
    jobs = [world.runs(max_runtime_us=seconds * SECOND_US) for seconds in (10, 5, 20)]
    stopped = [order.job_id for order in all_of(AttemptStopOrdered, world.passes(30))]
    assert stopped == [jobs[1], jobs[0], jobs[2]]
    assert not world.state.deadlines
    world.settle()
    assert world.state.deadlines_from_us is None


def test_a_gang_of_the_smaller_nodes_was_not_tried_again_when_room_for_its_rest_came_free() -> None:
    world = World()
    world.node("big", 8, gpu_type="A100")
    world.node("n-1", 4)
    world.node("n-2", 4)
    whole = world.runs(gpus=4, gpu_types=("H100",))
    half, _ = (world.runs(gpus=2, gpu_types=("H100",)) for _ in range(2))
    waits = world.submit(gpus=6, gpu_types=("H100",))
    world.tick()
    world.exits(whole)
    world.tick()
    assert not world.is_running(waits)
    world.exits(half)
    world.tick()
    assert world.is_running(waits)
