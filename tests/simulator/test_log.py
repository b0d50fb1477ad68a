"""A simulation's log passes as a real one: a replay of it finds the same rounds, and a process restores its state."""

from pathlib import Path

import pytest

from gangline.events import identity
from gangline.events.log import CONTROL, DECISIONS, Log
from gangline.events.memory import MemoryLog
from gangline.events.policy import Policy
from gangline.events.sqlite import SqliteLog
from gangline.events.types import JobSpec
from gangline.scheduler.canonical import to_bytes
from gangline.scheduler.code_store import code_digest
from gangline.simulator.work import SECOND_US, Failure, Work, uniform_nodes
from gangline.simulator.world import World
from tests.scheduler.loop_world import read_all
from tests.scheduler.replays import folded, replay

SIZES = (1, 2, 4, 8, 16, 12)


def fails(work: Work, attempt: int, _gpus: int, shares: int) -> Failure | None:
    """Let every third job's first attempt fail."""
    if work.number % 3 or attempt > 1:
        return None
    return Failure(after_us=250 * SECOND_US, share=work.number % shares)


def simulated(log: Log | None = None, *, jobs: int = 40) -> World:
    works = [
        Work(
            number=number,
            submit_us=number * 37 * SECOND_US,
            spec=JobSpec(name=f"job-{number}", queue="default", command=("train",), gpus=SIZES[number % 6]),
            work_us=(300 + number * 100) * SECOND_US,
            save_us=5 * SECOND_US,
            save_interval_us=100 * SECOND_US,
            restart_us=10 * SECOND_US,
            fails=True,
        )
        for number in range(jobs)
    ]
    world = World(nodes=uniform_nodes(3, pods=2), policy=Policy(), works=works, failures=fails, log=log)
    world.run()
    assert {job.outcome for job in world.jobs} == {"succeeded"}
    return world


def values(log: Log) -> list[list[bytes]]:
    return [[record.value for record in read_all(log, topic)] for topic in (CONTROL, DECISIONS)]


def test_a_replay_finds_the_rounds_that_the_simulation_decided() -> None:
    log = MemoryLog()
    world = simulated(log)
    replayed = replay(log, keep_states=False)
    assert (replayed.void, len(replayed.answers())) == (0, 41), "40 jobs and a policy"
    assert identity.log_id(log) == world.driver.log_id
    (state,) = replayed.states.values()
    assert state == to_bytes(world.driver.state)


def test_a_scheduler_restores_the_state_of_a_simulation(tmp_path: Path) -> None:
    log = MemoryLog()
    world = simulated(log)
    assert folded(log, tmp_path, code_digest()) == to_bytes(world.driver.state)


def test_the_same_simulation_writes_the_same_bytes() -> None:
    logs = [MemoryLog(), MemoryLog()]
    for log in logs:
        simulated(log)
    assert values(logs[0]) == values(logs[1])


def test_a_simulation_without_a_log_decides_the_same() -> None:
    assert to_bytes(simulated().driver.state) == to_bytes(simulated(MemoryLog()).driver.state)


@pytest.mark.slow
def test_a_log_in_sqlite_holds_the_same_records(tmp_path: Path) -> None:
    memory, stored = MemoryLog(), SqliteLog(tmp_path / "log")
    try:
        simulated(memory, jobs=12)
        simulated(stored, jobs=12)
        assert values(memory) == values(stored)
    finally:
        stored.close()
