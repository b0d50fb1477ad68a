"""What the contract suite does in other processes, or in threads where a log lives in one process only.

    python -m tests.events.log_worker '{"backend": {"kind": "sqlite", ...}, "work": "append", ...}'

Each piece of work says what it did line by line, so that its parent can wait for a line and knows what was acknowledged
when it kills the process.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.events.log import START, Entry, Log, LogUnavailable

Say = Callable[[str], None]

BATCH_BYTES = 2_000
"""Roughly what a value of the larger kind has."""


def value(writer: int, number: int) -> bytes:
    """Return a value that names its writer and number, and whose tail shows whether it is whole."""
    head = f"{writer}:{number}:".encode()
    return head + bytes([(writer * 31 + number) % 251]) * ((number * 97) % BATCH_BYTES) + b":" + head


def writer_and_number(record_value: bytes) -> tuple[int, int]:
    """Return what `value` was made of; fails if it is not whole."""
    writer, number = (int(part) for part in record_value.split(b":")[:2])
    assert record_value == value(writer, number), f"record {number} of writer {writer} is torn"
    return writer, number


def append(log: Log, say: Say, *, topic: str, writer: int, count: int, batch: int) -> None:
    """Append `count` records in batches; says `acked N` after each append, N the records acknowledged so far."""
    say("ready")
    for first in range(0, count, batch):
        numbers = range(first, min(first + batch, count))
        addresses = log.append(topic, [Entry(b"writer-%d" % writer, value(writer, number)) for number in numbers])
        assert len(addresses) == len(numbers)
        say(f"acked {numbers[-1] + 1}")


def append_until(log: Log, say: Say, *, topic: str, writer: int, batch: int, stop: str) -> None:
    """Append batch after batch, at most 200 a second, until the file `stop` exists; says `acked N` like `append`.

    A batch that the log did not answer is appended again, after `again N`: it may be stored twice.
    """
    say("ready")
    number = 0
    while not Path(stop).exists():
        numbers = range(number, number + batch)
        try:
            log.append(topic, [Entry(b"writer-%d" % writer, value(writer, each)) for each in numbers])
        except LogUnavailable as error:
            say(f"again {number} {error}")
            continue
        number += batch
        say(f"acked {number}")
        time.sleep(0.005)


def follow(log: Log, say: Say, *, topic: str, count: int) -> None:
    """Read `count` records from the beginning, waiting for them; says `at-end` when it waits, `read KEY` for each."""
    reader = log.reader(topic, START)
    found = sum(len(batch) for batch in reader.read_to_end())
    say("at-end")
    while found < count:
        for record in reader.read(timeout_s=1.0):
            say(f"read {record.index} {record.value.decode()}")
            found += 1
    reader.close()


WORK: dict[str, Callable[..., None]] = {"append": append, "append_until": append_until, "follow": follow}


def open_log(backend: dict[str, Any]) -> Log:
    """Open the log that a backend of the suite described."""
    kind = backend["kind"]
    if kind == "sqlite":
        from gangline.events.sqlite import SqliteLog

        return SqliteLog(Path(backend["folder"]))
    if kind == "kafka":
        from gangline.events.kafka import KafkaLog

        return KafkaLog(backend["bootstrap"], prefix=backend["prefix"], create=True)
    raise ValueError(f"no worker can open a log of kind {kind!r}")


def main() -> None:
    """Do the work that the command line describes."""
    asked = json.loads(sys.argv[1])
    log = open_log(asked.pop("backend"))
    WORK[asked.pop("work")](log, lambda line: print(line, flush=True), **asked)
    log.close()


if __name__ == "__main__":
    main()
