"""The log in SQLite: batches against bare apsw, and eight processes that append at once."""

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import apsw

from benchmarks.figures import Figure, interleaved
from benchmarks.records import encoded_entries
from gangline.events.log import CONTROL
from gangline.events.sqlite import SqliteLog

BATCH = 1_000
WRITERS = 8
JOIN_TIMEOUT_S = 60.0


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield `log.sqlite_*`, measured in the folder for temporary files (set TMPDIR to measure another disk)."""
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder:
        yield batches(Path(folder) / "batches", rounds=7 if quick else 25)
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder:
        yield from contended(Path(folder), seconds=4.0 if quick else 15.0)


def batches(folder: Path, *, rounds: int) -> Figure:
    """Measure appends of 1,000 records, ours and bare apsw in turns: ten batches a turn, each durable."""
    folder.mkdir()
    entries = encoded_entries(BATCH)
    turn = 10
    log = SqliteLog(folder / "ours")
    bare = bare_database(folder / "bare.db")
    (first,) = bare.execute("SELECT count(*) FROM records").fetchone() or (0,)
    next_index = [int(first)]

    def ours() -> float:
        start = time.perf_counter()
        for _ in range(turn):
            log.append(CONTROL, entries)
        return turn * BATCH / (time.perf_counter() - start)

    def theirs() -> float:
        start = time.perf_counter()
        for _ in range(turn):
            rows = [(number, key, value) for number, (key, value) in enumerate(entries, next_index[0])]
            with bare:
                bare.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
            next_index[0] += BATCH
        return turn * BATCH / (time.perf_counter() - start)

    our_rate, their_rate = interleaved(ours, theirs, rounds)
    log.close()
    bare.close()
    size = sum(len(key) + len(value) for key, value in entries) // BATCH
    return Figure(
        name="log.sqlite_ratio",
        value=our_rate / their_rate,
        unit="ratio",
        goal=0.6,
        better="higher",
        reference=f"{our_rate:,.0f}/s ours, {their_rate:,.0f}/s bare apsw; {size} bytes a record",
    )


def bare_database(path: Path) -> apsw.Connection:
    """Open what one would write without gangline, as durable, with checkpoints as far apart as ours."""
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute("PRAGMA synchronous=FULL").fetchall()
    connection.execute("PRAGMA wal_autocheckpoint=4096").fetchall()
    connection.execute("PRAGMA cache_size=-65536").fetchall()
    connection.execute("CREATE TABLE records (idx INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL)")
    return connection


def contended(folder: Path, *, seconds: float) -> Iterator[Figure]:
    """Measure eight processes that append single records, each durable before the next."""
    sync_us = bare_sync_us(folder)
    SqliteLog(folder / "log").close()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WRITERS)
    with context.Pool(WRITERS, initializer=remember, initargs=(barrier,)) as pool:
        results = pool.starmap_async(
            append_for, [(folder / "log", number, seconds) for number in range(WRITERS)], chunksize=1
        ).get(timeout=seconds + JOIN_TIMEOUT_S)
    count = sum(appended for appended, _, _ in results)
    worst_s = max(worst for _, worst, _ in results)
    p50_ms = statistics.median(p50 for _, _, p50 in results) * 1e3
    yield Figure(
        name="log.sqlite_contended_per_s",
        value=count / seconds,
        unit="records/s",
        goal=2_000.0,
        better="higher",
        reference=f"{WRITERS} processes, {seconds:g} s; bare fdatasync p50 {sync_us:,.0f} us",
    )
    yield Figure(
        name="log.sqlite_contended_worst_s",
        value=worst_s,
        unit="s",
        goal=0.25,
        better="lower",
        reference=f"longest of {count:,} appends, p50 {p50_ms:.2f} ms; bare fdatasync p50 {sync_us:,.0f} us",
    )


def bare_sync_us(folder: Path) -> float:
    """Return the median time of a 4 KiB write with fdatasync, microseconds."""
    block = os.urandom(4096)
    times = []
    descriptor = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(200):
            start = time.perf_counter()
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
    return statistics.median(times) * 1e6


_barrier: list[Barrier] = []


def remember(barrier: Barrier) -> None:
    """Keep the barrier that all writers of the pool start from."""
    _barrier.append(barrier)


def append_for(folder: Path, number: int, seconds: float) -> tuple[int, float, float]:
    """Append single records for a time; return their number, the longest wait and the median one, seconds."""
    entries = encoded_entries(400)
    log = SqliteLog(folder)
    log.append(CONTROL, [entries[number]])
    _barrier[0].wait(JOIN_TIMEOUT_S)
    waits: list[float] = []
    end = time.perf_counter() + seconds
    before = time.perf_counter()
    while before < end:
        log.append(CONTROL, [entries[len(waits) % len(entries)]])
        after = time.perf_counter()
        waits.append(after - before)
        before = after
    log.close()
    return len(waits), max(waits), statistics.median(waits)
