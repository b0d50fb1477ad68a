"""The database of one partition: its tables, its records, and what makes them trustworthy."""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import apsw

from gangline.events.log import LogCut, LogDamaged, LogTooNew, Record
from gangline.events.sqlite_errors import damaged, translated

APPLICATION_ID = 0x676C6F67  # "glog"
FORMAT = 1
"""The format that this code writes, kept in `user_version`; a higher one is refused."""

MAX_BATCH_BYTES = 16 * 1024 * 1024
"""A read returns at most about this much, whatever its limit, so that readers' memory is bounded."""

LIMIT_BYTES = 2_000_000
"""No row is larger; a larger length in a file is damage, and must not ask for a gigabyte of memory."""

CACHE_KIB = 64 * 1024
"""A writer's page cache, so large that no transaction spills into the WAL before its commit."""

TABLES = (
    "CREATE TABLE records (idx INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE slots (slot INTEGER PRIMARY KEY, ticket BLOB NOT NULL, first_idx INTEGER NOT NULL, crc INTEGER)",
)
COLUMNS = 4
ROWS_A_STATEMENT = 16
_INSERT_ONE = "INSERT INTO records VALUES (?, ?, ?, ?)"
_INSERT_MANY = _INSERT_ONE + ", (?, ?, ?, ?)" * (ROWS_A_STATEMENT - 1)
_PREFIX = struct.Struct("<QI")


def record_crc(index: int, key: bytes, value: bytes) -> int:
    """Return the CRC-32 over index, key and value of a record."""
    return zlib.crc32(value, zlib.crc32(key, zlib.crc32(_PREFIX.pack(index, len(key)))))


def create(path: Path) -> None:
    """Make an empty database beside its final name, then rename it: it exists whole or not at all."""
    new = path.with_name(path.name + ".new")
    with translated(path):
        for leftover in (new, new.with_name(new.name + "-journal"), new.with_name(new.name + "-wal")):
            leftover.unlink(missing_ok=True)
        with closing(apsw.Connection(str(new))) as connection:
            connection.execute("PRAGMA synchronous=FULL").fetchall()
            with connection:
                for table in TABLES:
                    connection.execute(table)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", FORMAT)
            connection.pragma("journal_mode", "wal")
        new.rename(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect(path: Path, *, write: bool, busy_timeout_s: float) -> apsw.Connection:
    """Open a database that exists, and check that it is a log in a format that we know."""
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    with translated(path):
        connection = apsw.Connection(str(path), flags=flags)
        try:
            connection.set_busy_timeout(int(busy_timeout_s * 1000))
            # Checkpoints happen under the partition's lock only.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute("PRAGMA synchronous=FULL").fetchall()
            connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
            connection.execute("PRAGMA cell_size_check=1").fetchall()
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, LIMIT_BYTES)
            if write:
                connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}").fetchall()
            _check_format(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _check_format(connection: apsw.Connection, path: Path) -> None:
    version = connection.pragma("user_version")
    if connection.pragma("application_id") != APPLICATION_ID:
        raise damaged(path, "it is an SQLite database, but not a log of gangline")
    if not isinstance(version, int) or version > FORMAT:
        raise LogTooNew(
            f"{path} has format {version}, this gangline knows formats up to {FORMAT}: "
            "it was written by a newer version; upgrade gangline on this machine to that version or a later one"
        )
    tables = tuple(sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid"))
    if version != FORMAT or tables != TABLES or connection.pragma("journal_mode") != "wal":
        raise damaged(path, "its tables are not those of a log")


def parameters(index: int, entries: Iterable[tuple[bytes, bytes]]) -> list[int | bytes]:
    """Return the columns of the rows of entries that begin at `index`, one row after the other in one list."""
    crc32, pack = zlib.crc32, _PREFIX.pack
    flat: list[int | bytes] = []
    for number, (key, value) in enumerate(entries, index):
        # record_crc, inline: this loop is a fifth of an append
        flat += (number, key, value, crc32(value, crc32(key, crc32(pack(number, len(key))))))
    return flat


def insert(connection: apsw.Connection, flat: list[int | bytes]) -> None:
    """Insert rows, many with one statement, which takes a third less time than one with each."""
    size = COLUMNS * ROWS_A_STATEMENT
    many = len(flat) // size * size
    if many:
        connection.executemany(_INSERT_MANY, [flat[start : start + size] for start in range(0, many, size)])
    rest = [flat[start : start + COLUMNS] for start in range(many, len(flat), COLUMNS)]
    connection.executemany(_INSERT_ONE, rest)


def check_row(path: Path, row: tuple[object, ...], index: int | None) -> Record:
    """Return a row as a record, or raise LogDamaged; `index` is what it must be, None if it is asked for."""
    found, key, value, crc = row
    if not isinstance(found, int) or not isinstance(key, bytes) or not isinstance(value, bytes):
        raise damaged(path, f"record {index if index is not None else found!r} has columns of a wrong type")
    if index is not None and found != index:
        raise damaged(path, f"record {index} is missing, {found} comes in its place")
    if found < 0 or crc != record_crc(found, key, value):
        raise damaged(path, f"the checksum of record {found} is wrong")
    return Record(found, found, key, value)


def select(connection: apsw.Connection, path: Path, index: int, limit: int) -> Iterator[Record]:
    """Yield the records from `index` on, each checked, at most `limit` and about MAX_BATCH_BYTES."""
    size = 0
    cursor = connection.execute(
        "SELECT idx, key, value, crc FROM records WHERE idx >= ? ORDER BY idx LIMIT ?", (index, limit)
    )
    try:
        for row in cursor:
            record = check_row(path, row, index)
            yield record
            index += 1
            size += len(record.key) + len(record.value)
            if size >= MAX_BATCH_BYTES:
                return
    finally:
        cursor.close()  # which ends the read transaction


def count(connection: apsw.Connection, path: Path, acknowledged: int) -> int:
    """Return the number of records, of which `acknowledged` at least must be there."""
    row = connection.execute("SELECT idx, key, value, crc FROM records ORDER BY idx DESC LIMIT 1").fetchone()
    found = 0 if row is None else check_row(path, row, None).index + 1
    if found < acknowledged:
        raise cut(path, found, acknowledged)
    return found


def cut(path: Path, found: int, acknowledged: int) -> LogDamaged:
    """Return the error for a database that lacks records which were acknowledged."""
    return damaged(path, f"{acknowledged} records were acknowledged, but those from {found} on are missing")


def check_position(path: Path, topic: str, index: int, found: int) -> None:
    """Raise LogCut for a position beyond the end."""
    if index > found:
        raise LogCut(
            f"position {index} lies beyond the end of '{topic}', which has {found} records in {path}: the log was cut "
            "or replaced, or the position is another log's; restore the log, or start its reader anew"
        )
