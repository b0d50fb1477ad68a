"""Reading one's own writes: wait until the tables cover an index of `control`."""

import time
from collections.abc import Callable

from sqlalchemy.engine import Connection, Engine

from gangline.events import codec
from gangline.events.codec import Undecodable
from gangline.events.control import ClockTicked
from gangline.events.log import CONTROL, Log, Position
from gangline.projections import positions
from gangline.projections.database import translated
from gangline.schemas.errors import TimedOut

POLL_S = 0.01
"""How often the tables are asked; an answer takes a fraction of a millisecond."""


def wait_covered(engine: Engine, open_log: Callable[[], Log], index: int, *, timeout_s: float) -> None:
    """Return once the tables cover `index` of `control`, or only ticks lie between, which change nothing.

    Raises TimedOut after `timeout_s`, NotFound if nothing has been projected.
    """
    deadline = time.monotonic() + timeout_s
    # One connection for all the asking; each question sees what is there by then.
    with translated(engine), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if positions.require(connection).control.index > index:
            return
        _wait(connection, open_log(), index, deadline)


def _wait(connection: Connection, log: Log, index: int, deadline: float) -> None:
    try:
        ticks = _Ticks(log)
        while True:
            stand = positions.require(connection)
            if stand.control.index > index or ticks.reach(stand.control, index):
                return
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"the tables cover `control` up to {stand.control.index - 1}, not yet {index}: wait longer with "
                    "--timeout, or see with `gangline doctor` whether the scheduler and the projector run"
                )
            time.sleep(POLL_S)
    finally:
        log.close()


class _Ticks:
    """Looks whether only ticks follow a position, reading each record once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._only_from: Position | None = None
        self._seen = Position(0, 0)

    def reach(self, start: Position, index: int) -> bool:
        """Say whether all records from `start` through `index` are there, and ticks."""
        at = max(start, self._seen) if self._only_from is not None else start
        reader = self._log.reader(CONTROL, at)
        try:
            while at.index <= index:
                records = reader.read(min(1_000, index + 1 - at.index))
                if not records:
                    break
                for record in records:
                    if not _is_tick(record.value):
                        self._only_from = None
                        return False
                at = reader.position
        finally:
            reader.close()
        self._only_from, self._seen = start, at
        return at.index > index


def _is_tick(value: bytes) -> bool:
    try:
        return isinstance(codec.decode(value), ClockTicked)
    except Undecodable:
        return False
