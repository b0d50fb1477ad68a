"""`--at`: a past moment of the log, by index or by time, and the state of the core then."""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gangline.cli.place import Place
from gangline.schemas.errors import NotFound, UsageError

if TYPE_CHECKING:
    from gangline.events.log import Log
    from gangline.scheduler.snapshot_store import SnapshotStore
    from gangline.scheduler.state import State

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="INDEX|TIME",
        help="As of then: an index of the log, a time such as 2026-11-30T07:00, or 10m for so long ago [now].",
    ),
]


class Moment(NamedTuple):
    """A log, and the state of the core just after a round of it."""

    log: "Log"
    store: "SnapshotStore"
    code_digest: str
    state: "State"
    through: int | None
    """The index asked for; None for now."""


@contextmanager
def moment(place: Place, at: str | None) -> Iterator[Moment]:
    """Give the state at a moment. Raises UsageError for no moment, NotFound for one before the first round."""
    from gangline.events import identity
    from gangline.scheduler.code_store import code_digest
    from gangline.scheduler.history_store import state_at
    from gangline.scheduler.snapshot_store import SnapshotStore

    log = place.open_log()
    try:
        store = SnapshotStore(place.home / "snapshots", identity.log_id(log))
        through = None if at is None else _index(log, at)
        digest = code_digest()
        yield Moment(log, store, digest, state_at(log, store, digest, through), through)
    finally:
        log.close()


def _index(log: "Log", at: str) -> int:
    from gangline.scheduler.history_store import index_at_time

    if at.isdecimal():
        return int(at)
    index = index_at_time(log, _time_us(at))
    if index is None:
        raise NotFound(f"--at {at}: nothing was decided by then; `gangline events tail` shows when the log begins")
    return index


def _time_us(at: str) -> int:
    from gangline.cli.units import MICRO, parse_duration_us

    try:
        return time.time_ns() // 1000 - parse_duration_us(at)
    except ValueError:
        pass
    try:
        # Years that no clock shows have no time in every zone.
        return round(dt.datetime.fromisoformat(at).astimezone().timestamp() * MICRO)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"--at {at}: write an index, a time such as 2026-11-30T07:00 (local, or with its zone), or 10m for 10 "
            "minutes ago"
        ) from error
