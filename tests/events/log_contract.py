"""The contract of the log, as tests that every backend passes.

A backend's test module subclasses LogContract and gives it a fixture `backend`; the suite knows nothing else of it.
"""

import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import pytest

from gangline.events.log import (
    CONTROL,
    DECISIONS,
    HEARTBEATS,
    MAX_CONTROL_RECORD_BYTES,
    MAX_RECORD_BYTES,
    PARTITIONS,
    START,
    Entry,
    Log,
    LogCut,
    Position,
    Reader,
    Record,
    RecordTooLarge,
)
from tests.events.log_worker import WORK, value, writer_and_number

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0
"""How long a test waits for what must happen, before it says that it did not."""


class Backend(Protocol):
    """A log of some kind, empty at the beginning of each test."""

    @property
    def kind(self) -> str:
        """`memory`, `sqlite` or `kafka`."""

    def open(self) -> Log:
        """Return the log, as another process would open it; the backend closes what it opened at the end."""

    def description(self) -> dict[str, Any] | None:
        """Return what `log_worker.open_log` opens it by in another process; None if it lives in this one only."""


class Worker:
    """A piece of `log_worker` work, in a process of its own, or in a thread for a log of this process only."""

    def __init__(self, backend: Backend, work: str, **arguments: str | int) -> None:
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        description = backend.description()
        if description is None:
            self._thread = threading.Thread(target=self._work, args=(backend.open(), work, arguments), daemon=True)
        else:
            asked = json.dumps({"backend": description, "work": work, **arguments})
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.events.log_worker", asked], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _work(self, log: Log, work: str, arguments: dict[str, str | int]) -> None:
        try:
            WORK[work](log, self._lines.put, **arguments)
        finally:
            self._lines.put(None)

    def _listen(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self.process.stdout.close()
        self.process.wait()
        self._lines.put(None)

    def wait_for(self, start: str) -> str:
        """Return the next line that begins so."""
        while (line := self._lines.get(timeout=WAIT_S)) is not None:
            self.lines.append(line)
            if line.startswith(start):
                return line
        pytest.fail(f"the worker ended before it said '{start}'")

    def join(self) -> list[str]:
        """Wait for the end of the work and return all it said."""
        while (line := self._lines.get(timeout=WAIT_S)) is not None:
            self.lines.append(line)
        self._thread.join()
        return self.lines

    def kill(self) -> list[str]:
        """Kill the process with SIGKILL and return all it said."""
        assert self.process is not None
        self.process.kill()
        return self.join()

    @property
    def acked(self) -> int:
        """How many records its last acknowledged append reached."""
        return max((int(line.split()[1]) for line in self.lines if line.startswith("acked")), default=0)


def entries(*values: bytes, key: bytes = b"job-1") -> list[Entry]:
    return [Entry(key, each) for each in values]


def rest(reader: Reader, limit: int = 10_000) -> list[Record]:
    """Return what a reader finds up to the end."""
    return [record for batch in reader.read_to_end(limit) for record in batch]


def everything(log: Log, topic: str = CONTROL, partition: int = 0) -> list[Record]:
    reader = log.reader(topic, partition=partition)
    found = rest(reader)
    reader.close()
    return found


def content(records: Iterable[Record]) -> list[tuple[bytes, bytes]]:
    return [(record.key, record.value) for record in records]


def numbers_by_writer(records: Iterable[Record]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for record in records:
        writer, number = writer_and_number(record.value)
        assert record.key == b"writer-%d" % writer
        found[writer].append(number)
    return found


class LogContract:
    """What holds for every backend."""

    def test_records_come_back_in_order_with_their_keys_and_values(self, backend: Backend) -> None:
        log = backend.open()
        first = [Entry(b"job-1", b"a"), Entry(b"", b"b"), Entry(b"job-2", b""), Entry(bytes(range(256)), b"\0\xff" * 9)]
        second = [Entry(b"job-1", b"c")]
        log.append(CONTROL, first)
        log.append(CONTROL, second)
        assert content(everything(log)) == [*first, *second]

    def test_indices_are_dense_and_offsets_rise(self, backend: Backend) -> None:
        log = backend.open()
        for start in range(0, 60, 20):
            log.append(CONTROL, entries(*(b"%d" % number for number in range(start, start + 20))))
        records = everything(log)
        assert [record.index for record in records] == list(range(60))
        assert all(one.offset < two.offset for one, two in pairwise(records))

    def test_append_returns_where_each_record_went(self, backend: Backend) -> None:
        log = backend.open()
        addresses = log.append(CONTROL, entries(b"a", b"b")) + log.append(CONTROL, entries(b"c"))
        assert [(0, record.offset) for record in everything(log)] == [tuple(address) for address in addresses]

    def test_an_append_of_nothing_does_nothing(self, backend: Backend) -> None:
        log = backend.open()
        assert log.append(CONTROL, []) == []
        assert everything(log) == []

    def test_topics_and_partitions_are_apart(self, backend: Backend) -> None:
        log = backend.open()
        log.append(CONTROL, entries(b"control"))
        log.append(DECISIONS, entries(b"decisions"))
        for partition in range(PARTITIONS[HEARTBEATS]):
            addresses = log.append(HEARTBEATS, entries(b"beat %d" % partition), partition=partition)
            assert [address.partition for address in addresses] == [partition]
        assert [record.value for record in everything(log, CONTROL)] == [b"control"]
        assert [record.value for record in everything(log, DECISIONS)] == [b"decisions"]
        for partition in range(PARTITIONS[HEARTBEATS]):
            found = everything(log, HEARTBEATS, partition)
            assert [(record.index, record.value) for record in found] == [(0, b"beat %d" % partition)]

    def test_a_reader_starts_where_another_stopped(self, backend: Backend) -> None:
        log = backend.open()
        log.append(CONTROL, entries(*(b"%d" % number for number in range(10))))
        reader = log.reader(CONTROL)
        seen: list[Record] = []
        while len(seen) < 4:
            seen += reader.read(4 - len(seen), timeout_s=WAIT_S)
        assert reader.position == seen[-1].after
        later = rest(log.reader(CONTROL, reader.position))
        assert [record.index for record in later] == list(range(4, 10))
        assert content(seen + later) == content(everything(log))

    def test_a_reader_at_the_end_is_no_cut(self, backend: Backend) -> None:
        log = backend.open()
        assert log.reader(CONTROL, START).read() == []
        log.append(CONTROL, entries(b"a"))
        end = everything(log)[-1].after
        reader = log.reader(CONTROL, end)
        assert reader.read() == []
        assert rest(reader) == []
        assert reader.position == end
        log.append(CONTROL, entries(b"b"))
        assert [(record.index, record.value) for record in rest(reader)] == [(1, b"b")]

    def test_a_read_returns_at_most_its_limit(self, backend: Backend) -> None:
        log = backend.open()
        log.append(CONTROL, entries(*(b"%d" % number for number in range(25))))
        batches = list(log.reader(CONTROL).read_to_end(limit=10))
        assert max(len(batch) for batch in batches) <= 10
        assert [record.index for batch in batches for record in batch] == list(range(25))

    def test_reading_to_the_end_sees_what_another_just_appended(self, backend: Backend) -> None:
        one, two = backend.open(), backend.open()
        reader = one.reader(CONTROL)
        for number in range(20):
            two.append(CONTROL, entries(b"%d" % number))
            assert [record.value for record in rest(reader)] == [b"%d" % number]

    def test_reading_to_the_end_ends_while_others_append(self, backend: Backend) -> None:
        log = backend.open()
        worker = Worker(backend, "append", topic=CONTROL, writer=0, count=400, batch=1)
        worker.wait_for("acked")
        while not worker.lines[-1].startswith("acked 400"):
            expected = worker.acked
            assert len(everything(log)) >= expected
            worker.wait_for("acked")
        worker.join()

    def test_a_follower_elsewhere_sees_each_append(self, backend: Backend) -> None:
        log = backend.open()
        log.append(CONTROL, entries(b"before"))
        follower = Worker(backend, "follow", topic=CONTROL, count=6)
        follower.wait_for("at-end")
        for number in range(1, 6):
            log.append(CONTROL, entries(b"after-%d" % number))
            assert follower.wait_for("read") == f"read {number} after-{number}"
        follower.join()

    def test_a_waiting_reader_is_woken_by_an_append(self, backend: Backend) -> None:
        log, other = backend.open(), backend.open()
        reader = log.reader(CONTROL)
        assert reader.read() == []
        appender = threading.Timer(0.05, other.append, (CONTROL, entries(b"a")))
        appender.start()
        assert [record.value for record in reader.read(timeout_s=WAIT_S)] == [b"a"]
        appender.join()

    @pytest.mark.parametrize("batch", [1, 20])
    def test_eight_processes_append_at_once(self, backend: Backend, batch: int) -> None:
        count = 200
        workers = [
            Worker(backend, "append", topic=CONTROL, writer=writer, count=count, batch=batch) for writer in range(8)
        ]
        for worker in workers:
            worker.join()
            assert worker.acked == count
        records = everything(backend.open())
        assert [record.index for record in records] == list(range(8 * count))
        assert numbers_by_writer(records) == {writer: list(range(count)) for writer in range(8)}

    def test_threads_share_a_log(self, backend: Backend) -> None:
        log = backend.open()
        threads = [
            threading.Thread(
                target=WORK["append"],
                args=(log, SimpleQueue[str | None]().put),
                kwargs={"topic": CONTROL, "writer": writer, "count": 50, "batch": 1 + writer},
            )
            for writer in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert numbers_by_writer(everything(log)) == {writer: list(range(50)) for writer in range(4)}

    def test_a_writer_killed_in_mid_batch_loses_nothing_acknowledged(self, backend: Backend) -> None:
        if backend.description() is None:
            pytest.skip("a thread cannot be killed, and a log in memory dies with its process")
        writers = 3
        for round_number in range(writers):
            worker = Worker(backend, "append", topic=CONTROL, writer=round_number, count=1_000_000, batch=100)
            for _ in range(2 + round_number):
                worker.wait_for("acked")
            worker.kill()
            found = numbers_by_writer(everything(backend.open()))[round_number]
            assert len(found) >= worker.acked
            assert found == list(range(len(found)))
        log = backend.open()
        log.append(CONTROL, [Entry(b"writer-9", value(9, 0))])
        assert numbers_by_writer(everything(log))[9] == [0]

    @pytest.mark.parametrize(("topic", "limit"), [(CONTROL, MAX_CONTROL_RECORD_BYTES), (DECISIONS, MAX_RECORD_BYTES)])
    def test_a_record_over_the_limit_appends_nothing_of_its_batch(
        self, backend: Backend, topic: str, limit: int
    ) -> None:
        log = backend.open()
        log.append(topic, entries(b"before"))
        too_large = Entry(b"key", bytes(limit - 2))
        with pytest.raises(RecordTooLarge, match=f"record 1 of this append to '{topic}' has {limit + 1:,} bytes"):
            log.append(topic, [Entry(b"key", b"small"), too_large, Entry(b"key", b"small")])
        largest = Entry(b"key", bytes(limit - 3))
        log.append(topic, [largest])
        assert content(everything(log, topic)) == [*entries(b"before"), largest]

    def test_a_position_beyond_the_end_says_that_the_log_was_cut(self, backend: Backend) -> None:
        log = backend.open()
        log.append(CONTROL, entries(b"a", b"b"))
        end = everything(log)[-1].after
        with pytest.raises(LogCut, match="position 7"):
            log.reader(CONTROL, Position(7, end.offset + 5))

    def test_what_was_appended_is_there_when_opened_anew(self, backend: Backend) -> None:
        log = backend.open()
        log.append(CONTROL, entries(b"a"))
        log.close()
        again = backend.open()
        again.append(CONTROL, entries(b"b"))
        assert [record.value for record in everything(again)] == [b"a", b"b"]

    def test_closing_twice_is_fine(self, backend: Backend) -> None:
        log = backend.open()
        log.append(CONTROL, entries(b"a"))
        reader = log.reader(CONTROL)
        reader.read(timeout_s=WAIT_S)
        for _ in range(2):
            reader.close()
        log.reader(CONTROL)
        for _ in range(2):
            log.close()
