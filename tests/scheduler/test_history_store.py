"""The log answers for any past moment: the state then, what was decided of a job, why it was placed and why it went."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from gangline.events.memory import MemoryLog
from gangline.events.policy import Policy
from gangline.events.types import HOUR_US, SECOND_US, Decision, JobSpec
from gangline.scheduler.canonical import to_bytes
from gangline.scheduler.code_store import code_digest
from gangline.scheduler.explain import explain
from gangline.scheduler.history_store import OtherCode, index_at_time, rounds, state_at, story_of, why_bound_there
from gangline.scheduler.snapshot_store import SnapshotStore
from gangline.scheduler.state import State
from gangline.simulator.observer import Observer
from gangline.simulator.work import Work, uniform_nodes
from gangline.simulator.world import World


class Ticks(Observer):
    """Keeps the state behind the last tick of every time in the simulated history."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.states: dict[int, State] = {}

    def ticked(self, at_us: int, decisions: Sequence[Decision]) -> None:
        del at_us, decisions
        assert self.world is not None
        state = self.world.driver.state
        if state.control_index == state.tick_index:
            self.states[state.tick_index] = state


def work(number: int, gpus: int, hours: int, *, at_h: int = 0, priority: int = 0) -> Work:
    spec = JobSpec(name=f"job-{number}", queue="default", command=("true",), gpus=gpus, priority=priority)
    return Work(number=number, submit_us=at_h * HOUR_US, spec=spec, work_us=hours * HOUR_US, save_us=60 * SECOND_US)


class History:
    """A job of low priority that gives way to another one after two hours, and comes back."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog()
        seen = Ticks()
        works = [work(0, 8, 6), work(1, 8, 1, at_h=2, priority=1)]
        world = World(nodes=uniform_nodes(1), policy=Policy(), works=works, observers=[seen], log=self.log)
        seen.world = world
        world.run()
        self.rounds = [round_.tick_index for round_ in rounds(self.log)]
        self.states = {index: state for index, state in seen.states.items() if index in self.rounds}
        self.victim, self.claimant = (job.job_id for job in world.jobs)
        self.start_us = world.start_us
        self.store = SnapshotStore(folder, world.driver.log_id)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_the_state_of_any_round_is_that_which_was_decided_on(history: History) -> None:
    assert history.states
    for index in history.states:
        found = state_at(history.log, history.store, code_digest(), index)
        assert to_bytes(found) == to_bytes(history.states[index])
    assert state_at(history.log, history.store, code_digest()).tick_index == history.rounds[-1]


def test_between_two_rounds_it_is_that_of_the_first(history: History) -> None:
    first, second = next(pair for pair in pairwise(history.rounds) if pair[1] > pair[0] + 1)
    assert state_at(history.log, history.store, code_digest(), second - 1).tick_index == first


def test_a_time_is_the_last_round_by_then(history: History) -> None:
    index = index_at_time(history.log, history.start_us + 2 * HOUR_US + 30 * SECOND_US)
    assert index is not None
    state = state_at(history.log, history.store, code_digest(), index)
    assert explain(state, history.claimant).startswith("room is held for it on node-0 (priority)")
    assert explain(state, history.victim).startswith("attempt 1 is told to give way")
    assert index_at_time(history.log, history.start_us - HOUR_US) is None


def test_the_story_of_a_job_tells_why_it_gave_way_and_for_whom(history: History) -> None:
    texts = [one.chapter.text for one in story_of(history.log, history.victim).told]
    order = f"attempt 1 was told to give way for {history.claimant} (priority: a job of the same queue has a higher"
    assert texts[:2] == ["it was admitted", "attempt 1 was placed on node-0"]
    assert any(text.startswith(order) for text in texts)
    assert "attempt 2 was placed on node-0" in texts
    assert texts[-1].startswith("it succeeded")
    of_claimant = [one.chapter.text for one in story_of(history.log, history.claimant).told]
    assert any(text.startswith(f"{history.victim} was told to give way for it (priority") for text in of_claimant)
    assert "room was held for it on node-0 (priority)" in of_claimant


def test_a_story_ends_where_it_is_asked_to(history: History) -> None:
    index = index_at_time(history.log, history.start_us + HOUR_US)
    texts = [one.chapter.text for one in story_of(history.log, history.victim, index).told]
    assert texts == ["it was admitted", "attempt 1 was placed on node-0"]


def test_a_placement_is_told_from_the_state_before_it(history: History) -> None:
    first = story_of(history.log, history.victim, index_at_time(history.log, history.start_us + HOUR_US)).bound
    assert first is not None
    turn, place = why_bound_there(history.log, history.store, code_digest(), first)
    assert turn.startswith("it was first of all that were pending; queue 'default', which used 0 of 8 GPUs guaranteed,")
    assert place == ("node-0 was the only node that could hold it: 8 of its 8 GPUs were wholly free")
    claimed = story_of(history.log, history.claimant).bound
    assert claimed is not None
    assert why_bound_there(history.log, history.store, code_digest(), claimed)[1] == (
        "room was held for it there (priority: a job of the same queue has a higher priority)"
    )


def test_what_other_code_decided_is_not_explained_by_this_one(history: History) -> None:
    with pytest.raises(OtherCode, match="another version"):
        state_at(history.log, history.store, "0" * 64)
