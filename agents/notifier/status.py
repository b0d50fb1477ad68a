"""What a running notifier says of itself, for `gangline doctor`: its file of messages is locked while it runs."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from gangline.agents.notifier.store import TROUBLES, Trouble, trouble_of
from gangline.events.types import Value
from gangline.schemas.errors import GanglineError

STATUS_FILE = "notifier.json"
"""Beside the messages."""

STATUS_S = 5.0
"""How often it is written."""

MAX_ERROR_CHARACTERS = 300


class Failing(Value, frozen=True, kw_only=True):
    """A target that does not take its messages."""

    target: str
    waiting: int
    tries: int
    """Of the message that was tried most often."""
    since_s: float
    """When the oldest of them was made, by the machine's clock."""
    error: str = ""
    """What came of the last try, if this notifier made one."""


class Status(Value, frozen=True, kw_only=True):
    """How the notifier stood at a time."""

    at_s: float
    """By the machine's clock."""
    pid: int
    routes: str
    """The file that it read at its start."""
    waiting: int
    failing: tuple[Failing, ...] = ()


def failing(troubles: list[Trouble], errors: dict[str, str]) -> tuple[Failing, ...]:
    """Return the targets in trouble, with what came of the last try where it is known."""
    return tuple(
        Failing(
            target=one.target,
            waiting=one.waiting,
            tries=one.tries,
            since_s=one.since_s,
            error=errors.get(one.target, "")[:MAX_ERROR_CHARACTERS],
        )
        for one in troubles
    )


def write_status(path: Path, status: Status) -> None:
    """Put it in place of the one before. Raises OSError."""
    beside = path.with_suffix(".json.new")
    beside.write_bytes(msgspec.json.encode(status))
    beside.replace(path)


def read_status(path: Path) -> Status | None:
    """Return what the notifier said last; None if it said nothing, or nothing that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError):
        return None


def left_behind(path: Path) -> tuple[int, tuple[Failing, ...]] | None:
    """Return how many messages wait in the file of a notifier that does not run, and for whom; None if it runs.

    Raises GanglineError if the file cannot be read.
    """
    mode = "rw" if os.access(path, os.W_OK) else "ro"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=0.0)) as sql:
            # Whoever only reads cannot tell one that has written nothing yet from none.
            sql.execute("BEGIN IMMEDIATE" if mode == "rw" else "BEGIN")
            troubles = [trouble_of(row) for row in sql.execute(TROUBLES)]
            waiting = int(sql.execute("SELECT count(*) FROM outbox").fetchone()[0])
            sql.execute("ROLLBACK")
    except sqlite3.Error as error:
        if "locked" in str(error):
            return None
        raise GanglineError(f"{path} cannot be read ({error}): mend its disk, or let this user read it") from error
    return waiting, failing(troubles, {})
