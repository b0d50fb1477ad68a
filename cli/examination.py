"""Looks at every part of a deployment; each finding says how to mend it."""

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from gangline.cli.place import Place
from gangline.cli.units import GIB, MICRO, show_bytes, show_duration
from gangline.events import codec, identity
from gangline.events.control import ClockTicked, Heartbeat
from gangline.events.history import HistoryReader
from gangline.events.log import CONTROL, HEARTBEATS, PARTITIONS, Log, LogCut, LogTooNew, Position
from gangline.events.types import Event
from gangline.projections.positions import Stand, require
from gangline.projections.queries import list_nodes
from gangline.schemas.errors import GanglineError, NotFound

Status = Literal["ok", "warning", "wrong"]

LOW_DISK_BYTES = 2 * GIB
"""Below this, checkpoints of small jobs already fill the disk."""

UNDECIDED_US = 5 * MICRO
"""Input that waits so long for a round: a running scheduler takes milliseconds, a standby takes over in 3 s.

`submit` gives up after 5 s and sends people here: by then it has to be told."""

MAX_LAG_ROUNDS = 1_000
"""A projector that runs is a few rounds behind at most."""

SILENT_US = 10 * MICRO
"""Agents beat every 2 s, and count as lost after 10 s."""

LAST_BEATS = 2_000
"""So many last heartbeats of a partition are looked at: several a node with 512 nodes."""

SQLITE_MENDED = (3, 51, 3)
"""Versions before can lose commits when WAL checkpoints overlap (https://sqlite.org/wal.html#walresetbug)."""


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do about it."""

    what: str
    status: Status
    found: str
    mend: str = ""


def examine(place: Place) -> list[Finding]:
    """Return what there is to say, in the order of the flow of data."""
    findings = [*_folder(place), *_sqlite()]
    try:
        log = place.open_log()
    except GanglineError as error:
        return [*findings, Finding("log", "wrong", str(error))]
    try:
        findings += _guarded("log", lambda: _log(place, log))
        stand: list[Stand] = []
        findings += _guarded("tables", lambda: _tables(place, log, stand))
        findings += _guarded("scheduler", lambda: _scheduler(log, stand[0] if stand else None))
        findings += _guarded("agents", lambda: _agents(place, log))
        findings += _guarded("notifier", lambda: _notifier(place))
    finally:
        log.close()
    return findings


def _guarded(what: str, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(look())
    except GanglineError as error:
        return [Finding(what, "wrong", str(error))]


def _folder(place: Place) -> Iterator[Finding]:
    import os

    if not os.access(place.home, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        yield Finding("folder", "wrong", f"{place.home} cannot be written", f"chown or chmod {place.home}")
        return
    free = shutil.disk_usage(place.home).free
    found = f"{place.home}, {show_bytes(free)} free"
    if free < LOW_DISK_BYTES:
        yield Finding("folder", "warning", found, "make room: the log, checkpoints and output need it")
    else:
        yield Finding("folder", "ok", found)


def _sqlite() -> Iterator[Finding]:
    import apsw

    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < SQLITE_MENDED:
        mend = "pip install --upgrade 'apsw>=3.51.3': this version can lose commits"
        yield Finding("SQLite of the log", "wrong", apsw.sqlite_lib_version(), mend)
    else:
        yield Finding("SQLite of the log", "ok", apsw.sqlite_lib_version())
    note = (
        "" if sqlite3.sqlite_version_info >= SQLITE_MENDED else " (old; only tables that can be computed anew use it)"
    )
    yield Finding("SQLite of the tables", "ok", sqlite3.sqlite_version + note)


def _log(place: Place, log: Log) -> Iterator[Finding]:
    yield Finding("log", "ok", f"{place.log_url}, log_id {identity.log_id(log)}")
    if place.log_url.startswith("kafka:"):
        from gangline.cli.kafka_examination import examine_kafka

        yield from examine_kafka(place.log_url)


def _tables(place: Place, log: Log, out: list[Stand]) -> Iterator[Finding]:
    from gangline.projections.database import snapshot

    try:
        with snapshot(place.open_tables()) as connection:
            stand = require(connection)
    except NotFound as error:
        yield Finding("tables", "wrong", str(error), "start `gangline up`, or `gangline projector`")
        return
    out.append(stand)
    reader = HistoryReader(log, stand.control, stand.decisions, stand.terms)
    try:
        if reader.log_id != stand.log_id:
            found = f"they were computed from log {stand.log_id}"
            yield Finding("tables", "wrong", found, "`gangline projector --rebuild` computes them anew")
            return
        lag = sum(1 for _ in reader.read_to_end())
    finally:
        reader.close()
    found = f"they cover `control` up to {stand.control.index - 1}, {lag} rounds behind"
    if lag > MAX_LAG_ROUNDS:
        yield Finding("tables", "wrong", found, "see whether the projector runs: logs/projector.log in the folder")
    else:
        yield Finding("tables", "ok", found)


def _scheduler(log: Log, stand: Stand | None) -> Iterator[Finding]:
    """Look for input that no round covers: an idle scheduler leaves no trace, for it has no reason to tick."""
    history = HistoryReader(log, stand.control, stand.decisions, stand.terms) if stand else HistoryReader(log)
    tick_at_us = stand.tick_at_us if stand else None
    for segment in history.read_to_end():
        tick_at_us = segment.inputs[-1].event.meta.at_us
    term, behind = history.terms.term, history.control_position
    history.close()
    oldest_us, waiting = None, 0
    reader = log.reader(CONTROL, behind)
    for records in reader.read_to_end():
        for record in records:
            event = codec.decode(record.value)
            if isinstance(event, Event) and not isinstance(event, ClockTicked):
                waiting += 1
                oldest_us = oldest_us or event.meta.at_us
    reader.close()
    now_us = time.time_ns() // 1000
    ago = f"the last round was {show_duration(now_us - tick_at_us)} ago" if tick_at_us else "there was no round yet"
    found = f"term {term}, {ago}, {waiting} inputs wait"
    if term == 0:
        yield Finding(
            "scheduler", "wrong", "no term is open", "start `gangline up`, or `gangline scheduler --open-term`"
        )
    elif oldest_us is not None and now_us - oldest_us > UNDECIDED_US:
        mend = "no scheduler decides: start `gangline up`, or see logs/scheduler.log in the folder"
        yield Finding("scheduler", "wrong", f"{found}, the oldest for {show_duration(now_us - oldest_us)}", mend)
    else:
        yield Finding("scheduler", "ok", found)


def _notifier(place: Place) -> Iterator[Finding]:
    from gangline.cli.notifier_examination import examine_notifier

    return examine_notifier(place)


def _agents(place: Place, log: Log) -> Iterator[Finding]:
    from gangline.cli.reads import tables

    beats = _last_beats(place, log)
    now_us = time.time_ns() // 1000
    with tables(place, None) as connection:
        nodes = list_nodes(connection)
    if not nodes:
        yield Finding(
            "agents", "warning", "no node has registered", "start `gangline up`, or `gangline agent` on a node"
        )
    for node in nodes:
        at_us = beats.get(node["node_id"])
        if at_us is None or now_us - at_us > SILENT_US:
            since = f"silent for {show_duration(now_us - at_us)}" if at_us else "no heartbeat found"
            mend = "start its agent: `gangline up`, or `gangline agent` there; its ranks may still run"
            yield Finding(f"agent of {node['node_id']}", "wrong", since, mend)
        else:
            found = f"beat {show_duration(now_us - at_us)} ago, {node['gpu_count']} GPUs ({node['gpu_type']})"
            yield Finding(f"agent of {node['node_id']}", "ok", found)


def _last_beats(place: Place, log: Log) -> dict[str, int]:
    last: dict[str, int] = {}
    for partition in range(PARTITIONS[HEARTBEATS]):
        first, end = _bounds(place, log, partition)
        start = max(first, end - LAST_BEATS)
        reader = log.reader(HEARTBEATS, Position(start, start), partition=partition)
        for records in reader.read_to_end():
            for record in records:
                try:
                    event = codec.decode(record.value)
                except LogTooNew:
                    continue
                if isinstance(event, Heartbeat):
                    last[event.node_id] = max(event.meta.at_us, last.get(event.node_id, 0))
        reader.close()
    return last


def _bounds(place: Place, log: Log, partition: int) -> tuple[int, int]:
    """Return the offsets of the first record of a partition of heartbeats and of its end."""
    if place.log_url.startswith("kafka:"):
        from gangline.cli.kafka_examination import bounds

        return bounds(place.log_url, HEARTBEATS, partition)
    return 0, end_offset(log, HEARTBEATS, partition)


def end_offset(log: Log, topic: str, partition: int = 0) -> int:
    """Return where a partition that begins at 0 ends: ask for readers further and further on, then halve the doubt."""

    def exists(offset: int) -> bool:
        try:
            log.reader(topic, Position(offset, offset), partition=partition).close()
        except LogCut:
            return False
        return True

    low, high = 0, 1
    while exists(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exists(middle) else (low, middle)
    return low
