"""Reads and follows one partition in SQLite, holding no transaction between polls."""

import threading
import time
from collections.abc import Callable, Iterator

from gangline.events import sqlite_database
from gangline.events.log import LogError, Position, Record
from gangline.events.sqlite_errors import damaged, translated
from gangline.events.sqlite_partition import Partition

POLL_S = 0.0005
"""How long a follower sleeps between its first looks; a look costs some 10 microseconds."""

QUIET_POLL_S = 0.02
"""What that grows to while nothing comes, by a tenth each time: about a tenth of the wait so far is added to it."""


class SqliteReader:
    """A reader of one partition; belongs to one thread."""

    def __init__(self, partition: Partition, position: Position, forget: Callable[["SqliteReader"], None]) -> None:
        self._partition = partition
        self._path = partition.path
        self._forget = forget
        self._connection = sqlite_database.connect(self._path, write=False, busy_timeout_s=partition.busy_timeout_s)
        self._position = position
        self._seen: int | None = None
        self._mutex = threading.Lock()  # against a close by the log's owner while we look
        self._closed = False
        try:
            sqlite_database.check_position(self._path, partition.topic, position.index, self._count())
        except BaseException:
            self._connection.close()
            raise

    @property
    def position(self) -> Position:
        """Just behind the last record returned."""
        return self._position

    def read(self, limit: int = 10_000, *, timeout_s: float = 0.0) -> list[Record]:
        """Return the next records; see the protocol. A batch is cut at about 16 MiB."""
        deadline = time.monotonic() + timeout_s
        pause_s = POLL_S
        while True:
            with self._mutex, translated(self._path):
                if self._closed:
                    raise LogError(f"the reader of {self._path} was closed; make a new one")
                version = self._version()
                if version != self._seen:
                    batch = self._fetch(limit)
                    if batch:
                        return batch
                    self._seen = version
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(pause_s, left))
            pause_s = min(pause_s * 1.1, QUIET_POLL_S)

    def read_to_end(self, limit: int = 10_000) -> Iterator[list[Record]]:
        """Yield batches until the end as it was at the call; see the protocol."""
        with self._mutex:
            end = self._count()
        while self._position.index < end:
            yield self.read(min(limit, end - self._position.index))

    def close(self) -> None:
        """Release the connection. Twice is fine."""
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._connection.close()
                self._forget(self)

    def _version(self) -> int:
        """Return a number that changes whenever anyone else commits."""
        self._partition.check_same_file()
        return int(self._connection.pragma("data_version"))

    def _count(self) -> int:
        with translated(self._path):
            acknowledged = self._partition.head.read()  # before the transaction, which must hold that much
            return sqlite_database.count(self._connection, self._path, acknowledged)

    def _fetch(self, limit: int) -> list[Record]:
        acknowledged = self._partition.head.read()  # before the transaction, which must hold that much
        batch = list(sqlite_database.select(self._connection, self._path, self._position.index, limit))
        if batch:
            self._position = batch[-1].after
        elif self._position.index < acknowledged:
            raise damaged(
                self._path, f"{acknowledged} records were acknowledged, but {self._position.index} is missing"
            )
        return batch
