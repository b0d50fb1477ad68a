"""What the notifier keeps in one SQLite file: where it stands on the log, the jobs that live, and the outbox.

A step on the log and the messages that follow from it are one transaction, so a crash at any point loses none. A
message leaves the outbox only after its receiver took it, so a crash between the two sends it again, with the same id.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gangline.agents.notifier.notice import Known
from gangline.events.log import Position
from gangline.events.terms import Terms
from gangline.schemas.errors import GanglineError, Refused

STORE_FILE = "notifier.sqlite"
"""In gangline's folder."""

TABLES_VERSION = 1
"""Of this file; there is no other yet."""

BUSY_S = 1.0
"""A second notifier has the file for longer than that."""

MAX_WAITING = 100_000
"""Messages that wait for one target; the oldest make room. More than a week of everything that 300 people do."""

_TABLES = """
CREATE TABLE IF NOT EXISTS stand (one INTEGER PRIMARY KEY CHECK (one = 1), log_id TEXT, control_index INTEGER,
    control_offset INTEGER, decisions_index INTEGER, decisions_offset INTEGER, term INTEGER, decided INTEGER);
CREATE TABLE IF NOT EXISTS jobs (job_id TEXT PRIMARY KEY, known BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT, event_id TEXT, body BLOB,
    made_at_s REAL, due_at_s REAL, tries INTEGER DEFAULT 0, UNIQUE (target, event_id));
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (due_at_s, id);
"""


MAX_TROUBLES = 20
"""Targets of which it is told that they take nothing."""

TROUBLES = (
    "SELECT target, count(*), max(tries), min(made_at_s) FROM outbox GROUP BY target HAVING max(tries) > 0 "  # noqa: S608 - a number
    f"ORDER BY max(tries) DESC, target LIMIT {MAX_TROUBLES}"
)


class Trouble(NamedTuple):
    """A target with messages that it did not take yet."""

    target: str
    waiting: int
    tries: int
    """Of the message that was tried most often."""
    since_s: float
    """When the oldest of them was made."""


def trouble_of(row: tuple[Any, ...]) -> Trouble:
    """Return a row of TROUBLES."""
    return Trouble(*row)


class Stand(NamedTuple):
    """Up to where the log is taken in."""

    log_id: str
    control: Position
    decisions: Position
    terms: Terms


class Message(NamedTuple):
    """One that waits in the outbox. Times are of the machine's clock, seconds."""

    id: int
    target: str
    event_id: str
    body: bytes
    made_at_s: float
    tries: int


class Store:
    """The file. Belongs to one thread. Any method raises GanglineError if the file cannot be read or written."""

    def __init__(self, path: Path) -> None:
        """Open it, and make it where there is none. Raises Refused while another notifier has it."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # One connection that keeps its lock until it is closed: nobody else ever writes here.
            self._sql = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            for line in ("locking_mode = EXCLUSIVE", "synchronous = FULL"):
                self._sql.execute(f"PRAGMA {line}")
            self._sql.execute("BEGIN IMMEDIATE")
            version = self._sql.execute("PRAGMA user_version").fetchone()[0]
            if version not in {0, TABLES_VERSION}:
                raise Refused(f"{path} is of version {version}, this gangline knows {TABLES_VERSION}: install its own")
            for statement in _TABLES.split(";"):
                self._sql.execute(statement)
            self._sql.execute(f"PRAGMA user_version = {TABLES_VERSION}")
            self._sql.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise Refused(f"another notifier has {path}: stop it, or give this one another --home") from error
            raise GanglineError(f"{path} cannot be opened ({error}): make its folder writable") from error
        except (sqlite3.Error, OSError) as error:
            raise GanglineError(f"{path} cannot be opened ({error}): make its folder writable") from error

    def stand(self) -> Stand | None:
        """Return where the notifier stands, None if it has not begun."""
        rows = self._execute(
            "SELECT log_id, control_index, control_offset, decisions_index, decisions_offset, term, decided FROM stand"
        )
        if not rows:
            return None
        row = rows[0]
        control, decisions = Position(row[1], row[2]), Position(row[3], row[4])
        return Stand(row[0], control, decisions, Terms(term=row[5], decided=row[6]))

    def jobs(self) -> dict[str, Known]:
        """Return the jobs that are remembered."""
        rows = self._execute("SELECT job_id, known FROM jobs")
        return {job_id: msgspec.json.decode(known, type=Known) for job_id, known in rows}

    def advance(
        self,
        stand: Stand,
        changed: Mapping[str, Known | None],
        messages: Sequence[tuple[str, str, bytes]],
        now_s: float,
    ) -> None:
        """Move on, with what changed of the jobs and the messages (target, event id, body), all or nothing."""
        control, decisions, terms = stand.control, stand.decisions, stand.terms
        values = (stand.log_id, *control, *decisions, terms.term, terms.decided)
        with self._writing():
            self._sql.execute("INSERT OR REPLACE INTO stand VALUES (1, ?, ?, ?, ?, ?, ?, ?)", values)
            self._sql.executemany(
                "DELETE FROM jobs WHERE job_id = ?", [(job,) for job, known in changed.items() if known is None]
            )
            self._sql.executemany(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?)",
                [(job, msgspec.json.encode(known)) for job, known in changed.items() if known is not None],
            )
            self._sql.executemany(
                "INSERT OR IGNORE INTO outbox (target, event_id, body, made_at_s, due_at_s) VALUES (?, ?, ?, ?, ?)",
                [(*message, now_s, now_s) for message in messages],
            )

    def due(self, now_s: float, busy: Iterable[str], limit: int) -> list[Message]:
        """Return messages that are due, the oldest of each target that is not busy."""
        held = tuple(busy)
        marks = ",".join("?" * len(held))
        rows = self._execute(
            "SELECT id, target, event_id, body, made_at_s, tries FROM outbox WHERE id IN ("  # noqa: S608 - marks only
            "SELECT min(id) FROM outbox "
            f"WHERE due_at_s <= ? AND target NOT IN ({marks}) GROUP BY target) ORDER BY due_at_s, id LIMIT ?",
            (now_s, *held, limit),
        )
        return [Message(*row) for row in rows]

    def delivered(self, message: Message) -> None:
        """Forget a message that was taken."""
        self._execute("DELETE FROM outbox WHERE id = ?", (message.id,))

    def later(self, message: Message, due_at_s: float) -> None:
        """Try a message again then."""
        self._execute("UPDATE outbox SET tries = tries + 1, due_at_s = ? WHERE id = ?", (due_at_s, message.id))

    def give_up(self, before_s: float) -> Counter[str]:
        """Drop what was made before then, and what is too much for one target; return how many of each target."""
        rows = self._execute(
            "SELECT id, target FROM (SELECT id, target, made_at_s, row_number() OVER "
            "(PARTITION BY target ORDER BY id DESC) AS place FROM outbox) WHERE made_at_s < ? OR place > ?",
            (before_s, MAX_WAITING),
        )
        # In one transaction, for each of them waits for the disk.
        with self._writing():
            self._sql.executemany("DELETE FROM outbox WHERE id = ?", [(number,) for number, _ in rows])
        return Counter(target for _, target in rows)

    def waiting(self) -> int:
        """Return how many messages wait."""
        return int(self._execute("SELECT count(*) FROM outbox")[0][0])

    def troubles(self) -> list[Trouble]:
        """Return the targets with messages that were tried and not taken, those tried most often first."""
        return [trouble_of(row) for row in self._execute(TROUBLES)]

    def close(self) -> None:
        """Close the file. Twice is fine."""
        self._sql.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep all that is written meanwhile, or nothing."""
        try:
            with self._sql:
                self._sql.execute("BEGIN")
                yield
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        try:
            return self._sql.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def _broken(self, error: sqlite3.Error) -> GanglineError:
        return GanglineError(f"{self._path} cannot be read or written ({error}): free space, or mend its disk")
