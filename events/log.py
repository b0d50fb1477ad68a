"""The protocol of the log: topics of records, appended durably and read in order.

A record of a partition has an `index`, which counts records densely from 0, and an `offset`, which only addresses it
in its backend (on Kafka offsets have gaps). Readers start at a `Position` and count on from there, so whoever stores a
position stores both numbers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from gangline.schemas.errors import GanglineError

CONTROL = "control"
DECISIONS = "decisions"
HEARTBEATS = "heartbeats"

PARTITIONS = {CONTROL: 1, DECISIONS: 1, HEARTBEATS: 8}
"""Every topic and its number of partitions."""

MAX_RECORD_BYTES = 900_000
"""No record is larger (key and value together); bigger things go to the object store."""

MAX_CONTROL_RECORD_BYTES = 256_000
"""The limit on `control`, which is kept for ever and held in memory by its readers."""


class LogError(GanglineError):
    """The log could not do what was asked."""


class RecordTooLarge(LogError):
    """A record exceeds the limit of its topic; nothing of its batch was appended."""


class LogUnavailable(LogError):
    """The log did not answer within the stated time; records of the call may or may not have been appended."""


class LogFull(LogError):
    """There is no space left; nothing of the call was acknowledged."""


class LogDamaged(LogError):
    """Stored bytes are not what was written. Reading stops here, for skipping would be a silent divergence."""


class LogCut(LogError):
    """A position lies beyond the end of its log, or before its beginning: records are missing."""


class LogReplaced(LogError):
    """The log is not the one that a position, a round or its other topic belongs to."""


class LogTooNew(LogError):
    """The log was written by a newer version of gangline."""


class Entry(NamedTuple):
    """What is appended."""

    key: bytes
    value: bytes


class Address(NamedTuple):
    """Where the backend put a record."""

    partition: int
    offset: int


class Position(NamedTuple):
    """The next record that a reader returns: its dense index, and the backend's offset to seek to."""

    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs here
    offset: int


START = Position(0, 0)


class Record(NamedTuple):
    """What is read."""

    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs here
    offset: int
    key: bytes
    value: bytes

    @property
    def after(self) -> Position:
        """The position just behind this record."""
        return Position(self.index + 1, self.offset + 1)


class Reader(Protocol):
    """Reads one partition in order. Belongs to one thread."""

    @property
    def position(self) -> Position:
        """Just behind the last record returned."""

    def read(self, limit: int = 10_000, *, timeout_s: float = 0.0) -> list[Record]:
        """Return the next records, at most `limit`; wait up to `timeout_s` for the first one.

        An empty list means that none came in time.

        Raises LogDamaged, LogCut, LogUnavailable.
        """

    def read_to_end(self, limit: int = 10_000) -> Iterator[list[Record]]:
        """Yield batches until every record that was acknowledged, to anyone, before this call has been returned."""

    def close(self) -> None:
        """Release what the reader holds. Twice is fine."""


class Log(Protocol):
    """A log of topics. `append` may be called from several threads."""

    def append(self, topic: str, entries: Sequence[Entry], *, partition: int = 0) -> list[Address]:
        """Append durably, in order, and return where each entry went.

        Delivery is at-least-once: after an error some of the entries may have been appended. A batch is not atomic, but
        each of its records is whole or absent, and no record of another append can overtake within one key.

        Raises RecordTooLarge, LogUnavailable, LogFull, LogDamaged.
        """

    def reader(self, topic: str, position: Position = START, *, partition: int = 0) -> Reader:
        """Return a reader that starts at `position`. Raises LogCut if the log ends before it."""

    def close(self) -> None:
        """Release what the log holds. Twice is fine."""


def check_sizes(topic: str, entries: Sequence[Entry]) -> None:
    """Raise RecordTooLarge, before anything is appended, for the first entry over the limit of its topic."""
    limit = MAX_CONTROL_RECORD_BYTES if topic == CONTROL else MAX_RECORD_BYTES
    for number, (key, value) in enumerate(entries):
        size = len(key) + len(value)
        if size > limit:
            raise RecordTooLarge(
                f"record {number} of this append to '{topic}' has {size:,} bytes, the limit is {limit:,}: "
                "put what is large into the object store and name it by URI and SHA-256"
            )
