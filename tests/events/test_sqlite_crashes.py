"""Writers of an SQLite log may die or stall at any moment: nothing acknowledged is lost, nothing is torn or doubled."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.events.log import CONTROL, Entry, LogUnavailable
from gangline.events.sqlite import SqliteLog
from gangline.events.sqlite_queue import MAX_FRAME_BYTES, SLOTS, Slots, pack, unpack
from tests.events.log_contract import ROOT, WAIT_S, Worker, everything, numbers_by_writer
from tests.events.log_worker import value
from tests.events.sqlite_backend import SqliteBackend

ROUNDS = 12
WRITERS = 4


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[SqliteBackend]:
    backend = SqliteBackend(tmp_path / "log")
    yield backend
    backend.close()


def wait_until_pending(slots: Slots, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(slots.pending()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def dying_writer(folder: Path, moment: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.events.sqlite_dying_writer", str(folder), moment],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_double_nothing(backend: SqliteBackend) -> None:
    chosen = random.Random(20)
    acked: dict[int, int] = {}
    alive: dict[int, Worker] = {}
    batches = (1, 1, 3, 200)  # the last one is too large for a slot
    for round_number in range(ROUNDS):
        while len(alive) < WRITERS:
            writer = len(acked) + len(alive)
            alive[writer] = Worker(
                backend, "append", topic=CONTROL, writer=writer, count=10**9, batch=batches[writer % 4]
            )
        for worker in alive.values():
            worker.wait_for("acked")
        time.sleep(chosen.random() * 0.3)  # the moment is the test's random input
        doomed = list(alive) if round_number % 4 == 3 else chosen.sample(list(alive), 2)
        for writer in doomed:
            process = alive[writer].process
            assert process is not None
            process.kill()
        for writer in doomed:
            worker = alive.pop(writer)
            worker.join()
            acked[writer] = worker.acked
    assert not alive
    found = numbers_by_writer(everything(backend.open()))
    for writer, count in acked.items():
        assert found[writer] == list(range(len(found[writer])))
        assert count <= len(found[writer]) <= count + batches[writer % 4]


@pytest.mark.parametrize("moment", ["before-commit", "after-commit", "after-first-announcement", "after-announcements"])
def test_a_holder_killed_around_its_commit_doubles_nothing(moment: str, backend: SqliteBackend) -> None:
    logs = [backend.open() for _ in range(3)]  # each is a writer of its own
    slots = Slots(backend.folder / "control-0.queue")
    dying = dying_writer(backend.folder, moment)
    addresses: dict[int, int] = {}

    def append(number: int) -> None:
        [address] = logs[number].append(CONTROL, [Entry(b"waiting", b"%d" % number)])
        addresses[number] = address.offset

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_until_pending(slots, 3)
    slots.close()
    dying.communicate("go\n", timeout=WAIT_S)
    assert dying.returncode == -signal.SIGKILL
    for thread in threads:
        thread.join(WAIT_S)
    records = everything(logs[0])
    expected = {(b"waiting", b"%d" % number) for number in range(3)}
    if moment != "before-commit":
        expected.add((b"dying", b"dying"))
    assert Counter((record.key, record.value) for record in records) == dict.fromkeys(expected, 1)
    assert {number: b"%d" % number for number in range(3)} == {
        number: records[offset].value for number, offset in addresses.items()
    }


def test_what_a_dead_writer_left_in_its_slot_is_forgotten_when_all_have_gone(backend: SqliteBackend) -> None:
    log = backend.open()
    slots = Slots(backend.folder / "control-0.queue")
    assert slots.take()
    assert slots.submit(1, [Entry(b"stale", b"stale")])
    assert len(slots.pending()) == 1
    log.close()
    log = backend.open()
    log.append(CONTROL, [Entry(b"a", b"a")])
    assert [record.value for record in everything(log)] == [b"a"]
    slots.close()


def test_a_torn_frame_in_a_slot_is_not_appended(backend: SqliteBackend) -> None:
    log = backend.open()
    slots = Slots(backend.folder / "control-0.queue")
    assert slots.take()
    assert slots.submit(1, [Entry(b"torn", b"torn by a kill")])
    path = backend.folder / "control-0.queue" / "slots"
    data = path.read_bytes()
    where = data.index(b"torn by a kill")
    with path.open("r+b") as file:
        file.seek(where)
        file.write(b"TORN")
    log.append(CONTROL, [Entry(b"a", b"a")])
    assert [record.value for record in everything(log)] == [b"a"]
    slots.close()


def test_a_dead_writer_of_a_large_append_holds_up_nobody(backend: SqliteBackend) -> None:
    log, other = backend.open(), backend.open()
    dead = Slots(backend.folder / "control-0.queue")
    assert dead.take()
    assert not dead.submit(1, [Entry(b"large", bytes(MAX_FRAME_BYTES))])
    assert dead.anyone_waits()
    log.append(CONTROL, [Entry(b"a", b"a")])
    assert dead.anyone_waits(), "it lives, and may want the lock again"
    os.close(dead._pipe)  # what the kernel does when it dies
    dead._pipe = -1
    other.append(CONTROL, [Entry(b"b", b"b")])
    assert not dead.anyone_waits()
    assert [record.value for record in everything(log)] == [b"a", b"b"]
    dead.close()


def test_a_holder_waits_for_the_others_only_for_a_bounded_moment(backend: SqliteBackend) -> None:
    log = backend.open()
    absent = Slots(backend.folder / "control-0.queue")
    assert absent.take()
    for _ in range(5):
        absent.note_commit([], took_s=10_000.0)  # as if it had shared each commit, and the disk were very slow
        log.append(CONTROL, [Entry(b"a", b"a")])
    assert len(everything(log)) == 5
    absent.close()


def test_a_stalled_holder_makes_others_unavailable_in_the_stated_time(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log", busy_timeout_s=0.3)
    log.append(CONTROL, [Entry(b"a", b"a")])
    reader = log.reader(CONTROL)
    stalled = dying_writer(tmp_path / "log", "before-commit")
    with pytest.raises(LogUnavailable, match=r"its lock was not free within 0\.3 s"):
        log.append(CONTROL, [Entry(b"b", b"b")])
    with pytest.raises(LogUnavailable, match=r"its lock was not free within 0\.3 s"):
        log.append(CONTROL, [Entry(b"b", bytes(MAX_FRAME_BYTES))])
    with pytest.raises(LogUnavailable, match=r"its lock was not free within 0\.2 s"):
        SqliteLog(tmp_path / "log", busy_timeout_s=0.2)
    assert [record.value for record in reader.read()] == [b"a"], "reading goes on"
    stalled.kill()
    stalled.communicate(timeout=WAIT_S)
    log.append(CONTROL, [Entry(b"c", b"c")])
    assert [record.value for record in reader.read()] == [b"c"], "what was refused was withdrawn"
    log.close()


def test_more_writers_than_slots_and_large_appends_all_get_their_turn(backend: SqliteBackend) -> None:
    logs = [backend.open() for _ in range(SLOTS + 6)]
    start = threading.Barrier(len(logs))

    def append(writer: int) -> None:
        start.wait()
        for number in range(3):
            batch = 20 if writer % 5 == 0 else 1
            entries = [Entry(b"writer-%d" % writer, value(writer, number * batch + each)) for each in range(batch)]
            logs[writer].append(CONTROL, entries)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(len(logs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    found = numbers_by_writer(everything(logs[0]))
    for writer in range(len(logs)):
        assert found[writer] == list(range(60 if writer % 5 == 0 else 3))


def test_a_log_opened_before_a_fork_refuses_the_child(backend: SqliteBackend) -> None:
    program = (
        "import os, sys, pathlib\n"
        "from gangline.events.log import Entry\n"
        "from gangline.events.sqlite import SqliteLog\n"
        "log = SqliteLog(pathlib.Path(sys.argv[1]))\n"
        "if os.fork() == 0:\n"
        "    try: log.append('control', [Entry(b'', b'')])\n"
        "    except Exception as error: print(error, flush=True)\n"
        "    log.close()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "log.append('control', [Entry(b'parent', b'')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(backend.folder)], capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    assert "before a fork; open it in this one" in done.stdout
    assert [record.key for record in everything(backend.open())] == [b"parent"]


def test_what_a_frame_holds_comes_out_again() -> None:
    entries = [Entry(b"", b""), Entry(b"key", b""), Entry(b"", b"value"), Entry(bytes(range(256)), bytes(1000))]
    assert unpack(pack(entries)) == entries
    assert unpack(pack([])) == []
