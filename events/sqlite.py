"""The log in SQLite, the embedded default: durable, for many processes of one machine, with nothing to run.

Each partition of a topic is one database file, opened only through apsw, which bundles a current SQLite: two SQLite
libraries on one file in one process break its locks, and those before 3.51.3 can lose commits
(https://sqlite.org/wal.html#walresetbug). How it stays fast and fair is told in `sqlite_queue`, what it trusts and what
it checks in `sqlite_database`, `sqlite_head` and `sqlite_wal`.
"""

import os
import threading
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path

from gangline.events.log import CONTROL, PARTITIONS, START, Address, Entry, LogError, Position, check_sizes
from gangline.events.sqlite_errors import not_permitted, translated
from gangline.events.sqlite_mounts import refuse_network_mount
from gangline.events.sqlite_partition import Partition
from gangline.events.sqlite_reader import SqliteReader

BUSY_TIMEOUT_S = 10.0
"""How long a call waits for other writers; a queue of 64 on a disk with 100 ms per sync needs less than one second."""


class SqliteLog:
    """A log in a folder of this machine."""

    def __init__(self, folder: Path, *, create: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Open the log in `folder`; with `create`, make it if it is not there.

        Raises LogError for a folder without write permission, without a log (unless `create`) or on a network file
        system, LogUnavailable if a lock is not free within `busy_timeout_s`, LogTooNew, LogDamaged.
        """
        self.folder = Path(folder).absolute()
        self._busy_timeout_s = busy_timeout_s
        self._mutex = threading.Lock()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._readers: set[SqliteReader] = set()
        self._closed = False
        with translated(self.folder):
            if create:
                self.folder.mkdir(parents=True, exist_ok=True)
            elif not (self.folder / f"{CONTROL}-0.db").exists():
                raise LogError(f"there is no log in {self.folder}; start one with `gangline up`, or name its folder")
        if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise not_permitted(self.folder, "it is not writable")
        refuse_network_mount(self.folder)
        self._partition(CONTROL, 0)

    def append(self, topic: str, entries: Sequence[Entry], *, partition: int = 0) -> list[Address]:
        """Append in one transaction; see the protocol. After an error, LogUnavailable apart, nothing was appended."""
        check_sizes(topic, entries)
        opened = self._partition(topic, partition)
        if not entries:
            return []
        first = opened.append(entries)
        return list(map(Address._make, zip(repeat(partition), range(first, first + len(entries)), strict=False)))

    def reader(self, topic: str, position: Position = START, *, partition: int = 0) -> SqliteReader:
        """Return a reader at `position`; see the protocol. Indices are offsets here, so only the index counts."""
        reader = SqliteReader(self._partition(topic, partition), position, self._readers.discard)
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        """Close readers and partitions. Twice is fine."""
        with self._mutex:
            self._closed = True
            for reader in list(self._readers):
                reader.close()
            for partition in self._partitions.values():
                partition.close()
            self._partitions.clear()

    def _partition(self, topic: str, number: int) -> Partition:
        if not 0 <= number < PARTITIONS[topic]:
            raise KeyError((topic, number))
        with self._mutex:
            if self._closed:
                raise LogError(f"the log in {self.folder} was closed; open it again")
            partition = self._partitions.get((topic, number))
            if partition is None:
                partition = Partition(self.folder, topic, number, self._busy_timeout_s)
                self._partitions[topic, number] = partition
            return partition
