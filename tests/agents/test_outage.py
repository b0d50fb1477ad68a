"""The log is away: training runs on, facts wait in order, and all of them arrive."""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from gangline.agents import agent as agent_module
from gangline.agents import outbox as outbox_module
from gangline.agents.agent import Agent
from gangline.agents.facts import Facts
from gangline.agents.inventory import take
from gangline.agents.outbox import Outbox
from gangline.agents.run_folder import AttemptKey, Failure, RunFolder
from gangline.agents.share import LocalShare
from gangline.events import codec, identity
from gangline.events.control import Heartbeat, LaunchFailed, NodeRegistered, RanksExited, RanksStarted
from gangline.events.decisions import RoundDecided, TermOpened
from gangline.events.log import CONTROL, DECISIONS, HEARTBEATS, Address, Entry, LogDamaged, LogError, LogUnavailable
from gangline.events.memory import MemoryLog
from gangline.events.types import Event
from tests.agents.node import META, NODE, WAIT_S, gang, wait_for


class Interrupted(MemoryLog):
    """A log that can be cut off, as a broker's machine would be."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: LogError | None = None
        self.refused = 0

    def append(self, topic: str, entries: Sequence[Entry], *, partition: int = 0) -> list[Address]:
        if self.fault is not None:
            self.refused += topic == CONTROL
            raise self.fault
        return super().append(topic, entries, partition=partition)

    def facts(self, topic: str = CONTROL, partition: int = 0) -> list[Event]:
        reader = self.reader(topic, partition=partition)
        found = [codec.decode(record.value) for records in reader.read_to_end() for record in records]
        return [event for event in found if isinstance(event, Event)]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    monkeypatch.setattr(outbox_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(outbox_module, "LONGEST_PAUSE_S", 0.05)
    return Interrupted()


@pytest.fixture
def facts() -> Facts:
    return Facts(take(node_id=NODE, gpus=2, gpu_type="declared", address="127.0.0.1"))


@pytest.fixture
def outbox(log: Interrupted) -> Iterator[Outbox]:
    failures: list[LogError] = []
    box = Outbox(log, failures.append)
    box.start()
    yield box
    box.close()
    assert not failures


def test_facts_wait_for_the_log_and_arrive_in_order(log: Interrupted, outbox: Outbox, facts: Facts) -> None:
    log.fault = LogUnavailable("away")
    acknowledged: list[int] = []
    for attempt in range(20):
        event = facts.exited(AttemptKey("job-a", attempt), (), gone=True)
        assert outbox.put("job-a", event, partial(acknowledged.append, attempt))
    wait_for(lambda: log.refused >= 3, "three attempts")
    assert not log.facts()
    assert not acknowledged
    log.fault = None
    assert outbox.flush(20)
    assert [event.attempt for event in log.facts() if isinstance(event, RanksExited)] == list(range(20))
    assert acknowledged == list(range(20))


def test_a_full_box_refuses_and_takes_again_once_there_is_room(
    log: Interrupted, outbox: Outbox, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_WAITING", 2)
    log.fault = LogUnavailable("away")
    assert [outbox.put("n", facts.registered(())) for _ in range(3)] == [True, True, False]
    log.fault = None
    assert outbox.flush(20)
    assert outbox.put("n", facts.registered(()))
    assert outbox.flush(20)


def test_a_damaged_log_ends_sending_and_says_so(log: Interrupted, facts: Facts) -> None:
    failures: list[LogError] = []
    box = Outbox(log, failures.append)
    box.start()
    log.fault = LogDamaged("bad bytes")
    box.put("n", facts.registered(()))
    wait_for(lambda: failures, "failure")
    assert failures == [log.fault]


def test_a_note_that_could_not_be_written_ended_sending_in_silence(log: Interrupted, facts: Facts) -> None:
    def note() -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    box = Outbox(log, lambda _: None)
    box.start()
    box.put("n", facts.registered(()), note)
    box.put("n", facts.registered(()))
    assert box.flush(WAIT_S)
    assert len([event for event in log.facts() if isinstance(event, NodeRegistered)]) == 2
    box.close()


def test_a_reason_too_long_for_a_record_is_cut(facts: Facts) -> None:
    event = facts.launch_failed(
        AttemptKey("job-a", 1), Failure(reason="x" * 300_000, retryable=True, at_us=0), cause=None
    )
    assert isinstance(event, LaunchFailed)
    assert len(event.reason) == 4000


def test_only_the_newest_run_folders_of_ended_attempts_are_kept(
    log: Interrupted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "KEPT_RUN_FOLDERS", 2)
    agent = Agent(tmp_path, log, take(node_id=NODE, gpus=1, gpu_type="declared", address="127.0.0.1"))
    attempts = tmp_path / "agents" / NODE / "attempts"
    for number in range(5):
        (attempts / f"job-{number}-1").mkdir()
        os.utime(attempts / f"job-{number}-1", (number, number))
    live = LocalShare(AttemptKey("job-0", 1), RunFolder(attempts / "job-0-1"), agent._crew)
    agent._shares[live.key] = live
    agent._prune()
    assert sorted(path.name for path in attempts.iterdir()) == ["job-0-1", "job-3-1", "job-4-1"]
    os.close(agent._lock)


def decide(log: Interrupted, tick: int, *encoded: bytes) -> None:
    decided = RoundDecided(
        meta=META, tick_index=tick, tick_event_id=bytes(16), term=1, more=False, decisions=tuple(encoded)
    )
    log.append(DECISIONS, [Entry(b"", codec.encode(decided))])


def test_a_job_runs_and_ends_while_the_log_takes_nothing(log: Interrupted, tmp_path: Path) -> None:
    identity.create(log, actor="test")
    term = TermOpened(
        meta=META,
        term=1,
        previous=0,
        control_index=0,
        code_digest="",
        wheel=None,
        boundary_sha256=None,
        state_sha256="",
    )
    log.append(DECISIONS, [Entry(b"", codec.encode(term))])
    agent = Agent(tmp_path, log, take(node_id=NODE, gpus=2, gpu_type="declared", address="127.0.0.1"))
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        wait_for(lambda: any(isinstance(event, NodeRegistered) for event in log.facts()), "registration")
        first, second = gang("true", job_id="job-a"), replace(gang("true", job_id="job-b"), attempt=2)
        decide(log, 1, codec.encode(first), codec.encode(second))
        log.fault = LogUnavailable("away")
        records = [tmp_path / "agents" / NODE / "attempts" / name / "shim.jsonl" for name in ("job-a-1", "job-b-2")]
        wait_for(lambda: all(path.exists() and b"gone" in path.read_bytes() for path in records), "end of both jobs")
        log.fault = None

        def gone() -> set[str]:
            return {event.job_id for event in log.facts() if isinstance(event, RanksExited) and event.gone}

        wait_for(lambda: gone() == {"job-a", "job-b"}, "report of both jobs")
        for job in ("job-a", "job-b"):
            kinds = [type(event) for event in log.facts() if getattr(event, "job_id", None) == job]
            assert kinds[0] is RanksStarted
    finally:
        log.fault = None
        agent.stop()
        thread.join(20)
    assert not thread.is_alive()
    beats = [event for partition in range(8) for event in log.facts(HEARTBEATS, partition)]
    assert all(isinstance(beat, Heartbeat) and beat.node_id == NODE for beat in beats)
