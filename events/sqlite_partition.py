"""One partition that is open: how it is opened, appended to under the lock, checkpointed and closed."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import apsw

from gangline.events import sqlite_database
from gangline.events.log import Entry, LogDamaged, LogError, LogFull, LogUnavailable
from gangline.events.sqlite_errors import damaged, translate, translated
from gangline.events.sqlite_head import Head
from gangline.events.sqlite_lock import FileLock
from gangline.events.sqlite_queue import Outcome, Pending, Slots

CHECKPOINT_PAGES = 4096
"""Pages in the WAL (16 MiB) from which it is copied into the database and begun anew."""

STUBBORN_CHECKPOINT_PAGES = CHECKPOINT_PAGES + CHECKPOINT_PAGES // 2
"""Pages from which a checkpoint waits for readers: some that take turns without a gap would keep the WAL growing."""

STUBBORN_WAIT_MS = 100
"""How long such a checkpoint waits."""

CLOSE_WAIT_S = 1.0
"""How long closing waits for the lock, only to leave the WAL empty."""

_FAILURES: tuple[type[LogError], ...] = (LogUnavailable, LogFull, LogDamaged, LogError)


class Partition:
    """A partition's database, head, lock and queue, held open by one process."""

    def __init__(self, folder: Path, topic: str, number: int, busy_timeout_s: float) -> None:
        self.topic = topic
        self.number = number
        self.path = folder / f"{topic}-{number}.db"
        self.busy_timeout_s = busy_timeout_s
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        queue_folder = folder / f"{topic}-{number}.queue"
        with translated(queue_folder), ExitStack() as opened:
            queue_folder.mkdir(mode=0o755, exist_ok=True)
            self._lock = opened.enter_context(closing(FileLock(queue_folder / "lock")))
            self._opened = opened.enter_context(closing(FileLock(queue_folder / "open")))
            with self._holding(busy_timeout_s):
                self._open(queue_folder, opened)
            self._resources = opened.pop_all()

    # Opening and closing.

    def _open(self, queue_folder: Path, opened: ExitStack) -> None:
        """Open everything, and if nobody else has the log open, look for damage before SQLite's recovery runs."""
        first = self._opened.try_exclusive()
        self.head = opened.enter_context(closing(Head(self.path.with_suffix(".head"))))
        self._slots = opened.enter_context(closing(Slots(queue_folder)))
        acknowledged = self.head.read()
        wal = self.path.with_name(self.path.name + "-wal")
        unmerged = wal.exists() and wal.stat().st_size > 0
        if not self.path.exists():
            if acknowledged or unmerged:
                raise damaged(self.path, f"it is missing, though {acknowledged} records were acknowledged")
            sqlite_database.create(self.path)
        elif first and unmerged:
            # numpy costs 100 ms, and only a log that was not closed cleanly needs it.
            from gangline.events import sqlite_wal  # noqa: PLC0415

            sqlite_wal.verify(wal)
        connect = sqlite_database.connect(self.path, write=True, busy_timeout_s=self.busy_timeout_s)
        self._connection = opened.enter_context(closing(connect))
        with translated(self.path):
            self._inode = self.path.stat().st_ino
            sqlite_database.count(self._connection, self.path, acknowledged)
            if first:
                self._slots.clear()
                # Leftovers behind a torn tail must not meet the next transactions.
                self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.set_wal_hook(self._note_wal_pages)
        self._opened.share()

    def close(self) -> None:
        """Close; whoever is last leaves an empty WAL and a durable head."""
        with self._mutex:
            if self._closed or self._process != os.getpid():
                return
            self._closed = True
            try:
                with self._holding(CLOSE_WAIT_S):
                    if self._opened.try_exclusive():
                        self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
                        self.head.sync()
            except (LogError, OSError):
                pass  # everything acknowledged is durable in the WAL; the next one to open copies it
            self._resources.close()

    @contextmanager
    def _holding(self, timeout_s: float) -> Iterator[None]:
        """Hold the lock without being in the queue; only for opening and closing."""
        deadline = time.monotonic() + timeout_s
        while not self._lock.try_exclusive():
            if time.monotonic() >= deadline:
                raise self._unavailable(timeout_s)
            time.sleep(0.002)
        try:
            yield
        finally:
            self._lock.release()

    def _unavailable(self, waited_s: float) -> LogUnavailable:
        return LogUnavailable(
            f"{self.path}: its lock was not free within {waited_s:g} s; a process that holds it is stopped or its disk "
            "does not answer. The records may still be appended; look at the end of the log before trying again"
        )

    def check_same_file(self) -> None:
        """Raise LogDamaged if the path names another file than we opened; SQLite would go on with the old one."""
        if self.path.stat().st_ino != self._inode:
            raise damaged(self.path, "it was replaced while open")

    # Appending.

    def append(self, entries: Sequence[Entry]) -> int:
        """Append entries durably and return the index of the first."""
        deadline = time.monotonic() + self.busy_timeout_s
        if not self._mutex.acquire(timeout=self.busy_timeout_s):
            raise self._unavailable(self.busy_timeout_s)
        try:
            self._check_usable()
            with translated(self.path):
                if not self._slots.anyone_waits() and self._lock.try_exclusive():
                    return self._lead(entries)
                return self._queue(entries, deadline)
        finally:
            self._mutex.release()

    def _check_usable(self) -> None:
        if self._closed:
            raise LogError(f"{self.path} was closed; open the log again")
        if self._process != os.getpid():
            raise LogError(f"{self.path} was opened by process {self._process} before a fork; open it in this one")

    def _queue(self, entries: Sequence[Entry], deadline: float) -> int:
        """Wait until another writer has committed our entries, or we hold the lock and do it ourselves."""
        ticket = int.from_bytes(os.urandom(8), "little")
        slotted = self._slots.take()
        submitted = slotted and self._slots.submit(ticket, entries)
        try:
            while True:
                if submitted and (outcome := self._slots.outcome(ticket)):
                    return self._result(outcome)
                if self._lock.try_exclusive():
                    if not submitted:
                        return self._lead(entries)
                    self._lead([])
                    if outcome := self._slots.outcome(ticket):
                        return self._result(outcome)
                    raise damaged(self._slots.path, "the append that was left in our slot is gone")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._unavailable(self.busy_timeout_s)
                if slotted:
                    self._slots.wait(left)
                else:
                    time.sleep(0.002)
        finally:
            if slotted:
                self._slots.withdraw()

    def _result(self, outcome: Outcome) -> int:
        if outcome.ok:
            return outcome.number
        raise _FAILURES[min(outcome.number, len(_FAILURES) - 1)](outcome.text)

    def _lead(self, own: Sequence[Entry]) -> int:
        """With the lock held: commit our entries and those of all who wait, then let go of it."""
        try:
            clean = not self._slots.interrupted() or self._settle()
            self._slots.begin()
            self._slots.gather()
            pending = self._slots.pending()
            begun = time.monotonic()
            try:
                first, firsts = self._commit(own, pending)
            except (apsw.Error, OSError, LogError) as error:
                failure = error if isinstance(error, LogError) else translate(self.path, error)
                if clean and isinstance(error, apsw.FullError):
                    # Not even its commit frame was written. Beginning the WAL anew could use up what space is freed.
                    self._slots.settled()
                for each in pending:
                    self._slots.answer(each, Outcome(ok=False, number=_kind(failure), text=str(failure)))
                raise failure from error
            self._slots.note_commit(pending, time.monotonic() - begun)
            self._announce(pending, firsts)
            if clean:
                self._slots.settled()
            self._checkpoint_if_due()
            return first
        finally:
            self._lock.release()
            self._slots.wake_next()

    def _commit(self, own: Sequence[Entry], pending: Sequence[Pending]) -> tuple[int, list[int]]:
        """Write all in one transaction, with what tells a later holder of the lock that it happened."""
        connection = self._connection
        self.check_same_file()
        connection.execute("BEGIN IMMEDIATE")
        try:
            first = sqlite_database.count(connection, self.path, self.head.read())
            flat = sqlite_database.parameters(first, own)
            firsts = []
            for each in pending:
                firsts.append(first + len(flat) // sqlite_database.COLUMNS)
                flat += sqlite_database.parameters(firsts[-1], each.entries)
            sqlite_database.insert(connection, flat)
            if pending:
                connection.executemany("INSERT OR REPLACE INTO slots VALUES (?, ?, ?, ?)", _slot_rows(pending, firsts))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self.head.write(first + len(flat) // sqlite_database.COLUMNS)
        return first, firsts

    def _announce(self, pending: Sequence[Pending], firsts: Sequence[int]) -> None:
        """Tell the waiting writers where their entries went."""
        for each, first in zip(pending, firsts, strict=True):
            self._slots.answer(each, Outcome(ok=True, number=first))

    def _settle(self) -> bool:
        """Finish what a holder began that died, or failed, within its commit; False if some of that remains to do.

        What it committed is announced, so that nobody appends it twice; and the WAL is begun anew, so that what it left
        there uncommitted cannot be taken for damage later.
        """
        stored = {
            slot: (ticket, first, crc)
            for slot, ticket, first, crc in self._connection.execute("SELECT slot, ticket, first_idx, crc FROM slots")
        }
        for each in self._slots.pending():
            ticket, first, crc = stored.get(each.slot, (b"", 0, 0))
            if ticket == each.ticket.to_bytes(8, "little"):
                if crc != sqlite_database.record_crc(first, ticket, b""):
                    raise damaged(self.path, f"the checksum of slot {each.slot} is wrong")
                self._slots.answer(each, Outcome(ok=True, number=first))
        return self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    # Checkpoints, always under the lock.

    def _note_wal_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_if_due(self) -> None:
        if self._wal_pages < CHECKPOINT_PAGES:
            self._checkpoint_at = CHECKPOINT_PAGES
        elif self._wal_pages >= self._checkpoint_at:
            stubborn = self._wal_pages >= STUBBORN_CHECKPOINT_PAGES
            self._checkpoint(apsw.SQLITE_CHECKPOINT_RESTART if stubborn else apsw.SQLITE_CHECKPOINT_PASSIVE)
            # Where a reader or a full disk keeps the WAL from beginning anew, not every append shall try that again.
            self._checkpoint_at = self._wal_pages + CHECKPOINT_PAGES // 4

    def _checkpoint(self, mode: int) -> bool:
        """Copy the WAL into the database as far as readers and disk allow; what was appended is durable either way."""
        try:
            self._connection.set_busy_timeout(STUBBORN_WAIT_MS)
            self._connection.wal_checkpoint(mode=mode)
        except (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError):
            return False  # tried again later
        finally:
            self._connection.set_busy_timeout(int(self.busy_timeout_s * 1000))
        return True


def _slot_rows(pending: Sequence[Pending], firsts: Sequence[int]) -> list[tuple[int, bytes, int, int]]:
    rows = []
    for each, first in zip(pending, firsts, strict=True):
        ticket = each.ticket.to_bytes(8, "little")
        rows.append((each.slot, ticket, first, sqlite_database.record_crc(first, ticket, b"")))
    return rows


def _kind(failure: LogError) -> int:
    return _FAILURES.index(type(failure)) if type(failure) in _FAILURES else len(_FAILURES) - 1
