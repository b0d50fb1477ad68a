"""The log in memory, for simulation and tests: the same contract, for one process."""

import threading
import time
from collections.abc import Iterator, Sequence

from gangline.events.log import PARTITIONS, START, Address, Entry, LogCut, Position, Record, check_sizes


class MemoryLog:
    """A log that lives as long as its process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._records: dict[tuple[str, int], list[Record]] = {
            (topic, partition): [] for topic, count in PARTITIONS.items() for partition in range(count)
        }

    def append(self, topic: str, entries: Sequence[Entry], *, partition: int = 0) -> list[Address]:
        """Append in order; see the protocol."""
        check_sizes(topic, entries)
        with self._changed:
            records = self._records[topic, partition]
            first = len(records)
            records.extend(Record(first + i, first + i, key, value) for i, (key, value) in enumerate(entries))
            self._changed.notify_all()
        return [Address(partition, first + i) for i in range(len(entries))]

    def reader(self, topic: str, position: Position = START, *, partition: int = 0) -> "MemoryReader":
        """Return a reader at `position`; see the protocol."""
        records = self._records[topic, partition]
        if position.index > len(records):
            raise LogCut(
                f"position {position.index} lies beyond the end of '{topic}', which has {len(records)} records"
            )
        return MemoryReader(records, self._changed, position)

    def close(self) -> None:
        """Nothing to release."""


class MemoryReader:
    """Reads a partition of a MemoryLog."""

    def __init__(self, records: list[Record], changed: threading.Condition, position: Position) -> None:
        self._records = records
        self._changed = changed
        self._position = position

    @property
    def position(self) -> Position:
        """Just behind the last record returned."""
        return self._position

    def read(self, limit: int = 10_000, *, timeout_s: float = 0.0) -> list[Record]:
        """Return the next records; see the protocol."""
        start = self._position.index
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while len(self._records) <= start:
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(left)
            batch = self._records[start : start + limit]
        self._position = batch[-1].after
        return batch

    def read_to_end(self, limit: int = 10_000) -> Iterator[list[Record]]:
        """Yield batches until the end as it was at the call; see the protocol."""
        end = len(self._records)
        while self._position.index < end:
            yield self.read(min(limit, end - self._position.index))

    def close(self) -> None:
        """Nothing to release."""
