"""The log on Kafka: appends through gangline against bare confluent-kafka, on a real broker of this machine."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.figures import Figure, interleaved
from benchmarks.records import encoded_entries
from deploy.local_kafka import LocalKafka, missing_tools
from gangline.events.kafka import KafkaLog
from gangline.events.log import CONTROL, Entry

BATCH = 1_000
"""As on SQLite."""

LARGE_BATCH = 10_000
"""Beside it, for the cost per record that a round trip hides."""

TIMEOUT_S = 60.0


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield `log.kafka_ratio`; a broker given as GANGLINE_KAFKA=host:port is used instead of one of our own."""
    given = os.environ.get("GANGLINE_KAFKA")
    missing = None if given else missing_tools()
    if missing:
        yield figure(None, missing)
        return
    with broker(given) as bootstrap:
        our_rate, their_rate = rates(bootstrap, BATCH, rounds=60 if quick else 250)
        large_ours, large_theirs = rates(bootstrap, LARGE_BATCH, rounds=6 if quick else 25)
    reference = (
        f"{our_rate:,.0f}/s ours, {their_rate:,.0f}/s bare confluent-kafka, {BATCH:,} records an append; "
        f"with {LARGE_BATCH:,}: {large_ours / large_theirs:.2f}"
    )
    yield figure(our_rate / their_rate, reference)


def figure(value: float | None, reference: str) -> Figure:
    """Return the figure with its goal."""
    return Figure(name="log.kafka_ratio", value=value, unit="ratio", goal=0.8, better="higher", reference=reference)


@contextmanager
def broker(given: str | None) -> Iterator[str]:
    """Yield the address of the broker that is given, or of one that lives as long as this block."""
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder, LocalKafka(Path(folder)) as local:
        yield local.bootstrap


def rates(bootstrap: str, batch: int, *, rounds: int) -> tuple[float, float]:
    """Measure appends of `batch` records, ours and theirs in turns, each until all are acknowledged."""
    prefix = f"bench-{os.getpid()}-{time.time_ns()}"
    entries = encoded_entries(batch)
    log = KafkaLog(bootstrap, prefix=prefix, create=True)
    bare = Bare(bootstrap, f"{prefix}.bare")

    def ours() -> float:
        start = time.perf_counter()
        log.append(CONTROL, entries)
        return batch / (time.perf_counter() - start)

    def theirs() -> float:
        start = time.perf_counter()
        bare.append(entries)
        return batch / (time.perf_counter() - start)

    try:
        return interleaved(ours, theirs, rounds)
    finally:
        log.close()
        topics = [f"{prefix}.{topic}" for topic in ("control", "decisions", "heartbeats", "bare")]
        admin = AdminClient({"bootstrap.servers": bootstrap})  # its requests end with it
        for removed in admin.delete_topics(topics).values():
            removed.result(TIMEOUT_S)


class Bare:
    """What one would write without gangline: idempotent, acks=all.

    Only the last record of an append is reported: the producer is idempotent, so that those before it are stored, too.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        admin = AdminClient({"bootstrap.servers": bootstrap})  # its requests end with it
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"})

    def append(self, entries: list[Entry]) -> None:
        """Produce the entries to partition 0 and wait until all are acknowledged."""
        outcomes: list[KafkaError | None] = []
        produce, topic = self._producer.produce, self._topic
        for key, value in entries[:-1]:
            produce(topic, value, key, 0)
        last = entries[-1]
        produce(topic, last.value, last.key, 0, lambda error, _message: outcomes.append(error))
        self._producer.flush(TIMEOUT_S)
        if outcomes != [None]:
            raise RuntimeError(f"the broker did not acknowledge {len(entries)} records: {outcomes}")
