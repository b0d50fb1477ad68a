"""Core time goes on by ticks of the one ticker that counts, at most 5 s each: a wrong clock moves nothing."""

import pytest

from gangline.events.control import TickerTookOver
from gangline.events.decisions import JobAdmitted
from gangline.scheduler.decide import next_due_us
from gangline.scheduler.reducers.clock import MAX_STEP_US
from tests.scheduler.world import SECOND_US, World, the

DAY_S = 24 * 3600


@pytest.mark.parametrize(
    ("seconds", "moved_s"), [(0, 0), (1, 1), (5, 5), (6, 5), (365 * DAY_S, 5), (-1, 0), (-365 * DAY_S, 0)]
)
def test_core_time_advances_by_the_difference_within_bounds(seconds: int, moved_s: int) -> None:
    world = World()
    before_us = world.state.now_us
    world.tick(seconds)
    assert world.state.now_us == before_us + moved_s * SECOND_US
    world.tick(1)
    assert world.state.now_us == before_us + (moved_s + 1) * SECOND_US, "the next difference is to the wrong clock"


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_a_wrong_clock_neither_stops_a_job_nor_forgets_an_answer(jump_s: int) -> None:
    world = World()
    world.node("n-1")
    job_id = world.runs(max_runtime_us=3600 * SECOND_US)
    answers = world.state.answers
    assert world.tick(jump_s) == []
    assert world.tick(-jump_s) == []
    assert world.state.answers == answers
    assert world.attempt(job_id).stop is None


def test_ticks_of_another_ticker_do_not_count() -> None:
    world = World()
    before = world.state
    assert world.tick(5, ticker="other") == []
    assert (world.state.now_us, world.state.tick_index) == (before.now_us, before.tick_index)


def test_who_took_over_last_ticks() -> None:
    world = World()
    world.append(TickerTookOver(meta=world.meta(), ticker="other"))
    job_id = world.submit()
    assert world.tick() == []
    assert the(JobAdmitted, world.tick(ticker="other")).job_id == job_id


def test_another_ticker_with_another_clock_moves_little() -> None:
    world = World()
    before_us = world.state.now_us
    world.append(TickerTookOver(meta=world.meta(), ticker="other"))
    world.tick(DAY_S, ticker="other")
    assert world.state.now_us - before_us == MAX_STEP_US


def test_a_tick_without_anything_to_decide_writes_nothing() -> None:
    world = World()
    world.tick()
    before = len([record for record in world.control if record.round])
    world.passes(60)
    assert len([record for record in world.control if record.round]) == before


def test_inputs_that_change_nothing_are_still_covered_by_an_empty_round() -> None:
    world = World()
    world.append(TickerTookOver(meta=world.meta(), ticker="t"))
    assert world.tick() == []
    assert world.control[-1].round is not None


def test_what_is_due_next_is_the_earliest_of_deadlines_and_answers() -> None:
    world = World()
    world.node("n-1")
    start_us = world.state.now_us
    world.runs(max_runtime_us=3600 * SECOND_US)
    assert next_due_us(world.state) == start_us + 3001 * SECOND_US, "it is warned ten minutes before"
    world.runs(max_runtime_us=60 * SECOND_US)
    assert next_due_us(world.state) == start_us + 32 * SECOND_US, "it is warned half-way"
