"""Reads the jobs of Microsoft's Philly clusters (msr-fiddle/philly-traces, CC BY 4.0; as published with Sia, SOSP'23).

Whoever shows a result of the trace names its source: `ATTRIBUTION`.
"""

from contextlib import closing
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from gangline.events.types import Value
from gangline.simulator.csv_rows import BadTrace, Row, rows
from gangline.simulator.work import SECOND_US

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
ATTRIBUTION = "Philly trace: msr-fiddle/philly-traces (CC BY 4.0), as published with Sia (SOSP'23)"
EPOCH = datetime(2017, 9, 1)  # noqa: DTZ001 - the trace names no zone
MAX_DURATION_S = 10 * 366 * 24 * 3600
END = datetime(2027, 9, 1)  # noqa: DTZ001 - as above
"""A later arrival is a slip of the pen, and would make a simulation wait for centuries."""
MAX_GPUS = 100_000


class PhillyJob(Value, frozen=True, kw_only=True):
    """A row of the trace; rows count from 0, without the header."""

    row: int
    arrival_s: int
    """Whole seconds since 2017-09-01 00:00:00."""
    duration_us: int
    gpus: int
    cluster: str
    """The virtual cluster, and so the team."""


def jobs(path: Path, *, gpus_most: int = MAX_GPUS) -> list[PhillyJob]:
    """Return the jobs of a trace in its order, one at least.

    Raises NotFound, and BadTrace with the row and the column.
    """
    with closing(rows(path, COLUMNS)) as found:
        read = [_job(number, row, gpus_most) for number, row in enumerate(found)]
    if not read:
        raise BadTrace(f"{path} has a header and no rows, so there is nothing to run")
    return read


def _job(number: int, row: Row, gpus_most: int) -> PhillyJob:
    return PhillyJob(
        row=number,
        arrival_s=_arrival_s(row),
        duration_us=_duration_us(row),
        gpus=row.integer("num_gpus", 1, gpus_most),
        cluster=_cluster(row),
    )


def _cluster(row: Row) -> str:
    name = row.name("cluster")
    if "/" in name:
        raise row.bad("cluster", "it names one queue, so it has no '/'")
    return name


def _arrival_s(row: Row) -> int:
    try:
        at = datetime.strptime(row.text("timestamp"), "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - the trace names no zone
    except ValueError:
        raise row.bad("timestamp", "a time is written as 2017-10-09 07:01:55") from None
    if at < EPOCH:
        raise row.bad("timestamp", f"the trace begins at {EPOCH}")
    if at >= END:
        raise row.bad("timestamp", f"jobs of a trace arrive before {END}")
    return int((at - EPOCH).total_seconds())


def _duration_us(row: Row) -> int:
    try:
        seconds = Decimal(row.text("duration"))
        duration_us = int(seconds * SECOND_US) if seconds.is_finite() and seconds <= MAX_DURATION_S else 0
    except InvalidOperation:
        duration_us = 0
    if duration_us <= 0:
        raise row.bad("duration", f"it has to be a number of seconds above 0 and up to {MAX_DURATION_S:,}")
    return duration_us
