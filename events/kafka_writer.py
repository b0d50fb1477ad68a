"""Appending to Kafka: an idempotent producer whose delivery reports are awaited.

A delivery report costs half of handing a record over, so only the first and the last record of an append have one. That
is enough: the producer is idempotent and gapless, so a record is stored only if those before it are, unless they grew
too old in between, which the clock tells. Where the last offset less the first counts the records, they lie side by
side. Otherwise (another producer's came between, because librdkafka cut the append into several requests; or the append
took as long as its timeout) they are read back.

The first record of a producer to a partition goes alone. A broker takes whatever sequence number it sees first, so if a
partition that was just created refuses one request and takes the next, the first one's repetition counts as known: it
is reported as stored, without an offset, and is not there.
"""

import threading
import time
from collections.abc import Callable, Sequence
from itertools import repeat

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from gangline.events.kafka_client import Client
from gangline.events.log import Address, Entry, LogError, LogUnavailable, check_sizes

MAX_QUEUED_RECORDS = 100_000
"""Records that wait in memory to be sent; a longer append waits for places."""

MAX_QUEUED_KBYTES = 131_072
"""The same in KiB: enough for 145 records of the largest size."""

MAX_REQUEST_BYTES = 1_000_000
"""One request's batch: fits what the topics accept, and the largest record."""

LINGER_MS = 1_000
"""How long records wait for more: until the append that sends them flushes them, so that they leave in one request."""

GRACE_S = 2.0
"""librdkafka looks for expired records once a second, so an append ends this much after its delivery timeout."""

TURN_S = 0.02
"""How long one thread serves the reports of all, beyond its own, while others append."""

REFUSALS = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""What waiting does not mend."""

FORGOTTEN = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - public names of theirs
"""What a broker that has just started makes librdkafka believe of a topic that was there when the log was opened."""

FORGOTTEN_PAUSE_S = 0.05
"""How long an append waits before it tries again with a topic that was forgotten; the metadata comes by itself."""

LOST = frozenset({KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE, KafkaError._STATE})  # noqa: SLF001 - the same
"""What a producer does not recover from; the next append gets a new one."""

_NEW_TUPLE: Callable[[type[Address], tuple[int, int]], Address] = tuple.__new__
"""What Address._make calls, at two thirds of its cost."""

ReadBack = Callable[[str, int, Sequence[Entry], int, int], list[int]]
"""(topic's name, partition, entries, first offset, last offset) -> the offsets of the entries."""


class _Delivery:
    """The reports of one append."""

    __slots__ = ("_turn", "done", "error", "first", "last")

    def __init__(self, turn: threading.Condition) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.done = False
        self.error: KafkaError | None = None
        self._turn = turn

    def report_first(self, error: KafkaError | None, message: Message) -> None:
        self.first = message.offset()
        self.error = error

    def report_last(self, error: KafkaError | None, message: Message) -> None:
        self.last = message.offset()
        if self.first is None:  # the only one
            self.first = self.last
        self.finish(self.error or error)

    def finish(self, error: KafkaError | None) -> None:
        with self._turn:
            self.error = error
            self.done = True
            self._turn.notify_all()


class KafkaWriter:
    """Appends for all threads of a process through one producer.

    Threads that wait for reports take turns at serving them: one serves, for all, the others wait to be told.
    """

    def __init__(self, client: Client, delivery_timeout_s: float, read_back: ReadBack) -> None:
        self._client = client
        self._delivery_timeout_s = delivery_timeout_s
        self._read_back = read_back
        self._sending = threading.Lock()
        self._beginning = threading.Lock()
        self._begun: set[tuple[str, int]] = set()
        """Partitions to which this producer has stored a record."""
        self._turn = threading.Condition()
        self._serving = False
        self._closed = False
        self._complaint: KafkaError | None = None
        self._broken = False
        self._producer = self._connect()

    def append(self, topic: str, name: str, entries: Sequence[Entry], partition: int) -> list[Address]:
        """Append to Kafka's topic `name`; see the protocol."""
        check_sizes(topic, entries)
        if self._closed:
            raise LogError(f"the log at {self._client.bootstrap} is closed")
        if not entries:
            return []
        start_s = time.monotonic()
        if (name, partition) in self._begun:
            return self._append(name, entries, partition, start_s)
        first = self._begin(name, entries[:1], partition, start_s)
        return first + (self._append(name, entries[1:], partition, start_s) if len(entries) > 1 else [])

    def _begin(self, name: str, entry: Sequence[Entry], partition: int, start_s: float) -> list[Address]:
        """Append an entry while this process has no other under way to its partition, unless one is stored there."""
        wait_s = start_s + self._delivery_timeout_s + GRACE_S - time.monotonic()
        if not self._beginning.acquire(timeout=max(wait_s, 0.0)):
            raise self._client.unavailable(f"an append to '{name}' within {self._delivery_timeout_s:g} s")
        try:
            addresses = self._append(name, entry, partition, start_s)
            self._begun.add((name, partition))
            return addresses
        finally:
            self._beginning.release()

    def _append(self, name: str, entries: Sequence[Entry], partition: int, start_s: float) -> list[Address]:
        delivery = _Delivery(self._turn)
        deadline = start_s + self._delivery_timeout_s + GRACE_S
        with self._sending:  # so that the records of one append leave side by side
            producer = self._producer
            self._send(producer, (name, partition), entries, delivery, deadline)
        while not delivery.done and time.monotonic() < deadline:
            self._serve(producer, delivery)
        if not delivery.done or delivery.error is not None:
            raise self._failure(producer, name, delivery)
        self._complaint = None
        in_time = time.monotonic() - start_s < self._delivery_timeout_s
        offsets = self._offsets(name, partition, entries, delivery, in_time=in_time)
        return list(map(_NEW_TUPLE, repeat(Address), zip(repeat(partition), offsets, strict=False)))

    def cluster(self) -> tuple[int, dict[str, int]]:
        """Return the number of the cluster's brokers, and of each topic's partitions.

        Raises LogUnavailable. The producer, having seen them, sends its first record at once instead of after 0.5 s.
        """
        timeout_s = self._client.connect_timeout_s
        try:
            metadata = self._producer.list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise self._client.unavailable(f"within {timeout_s:g} s", error.args[0]) from error
        return len(metadata.brokers), {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def close(self) -> None:
        """Close the producer; appends under way fail. Twice is fine."""
        if self._closed:
            return
        self._closed = True
        self._producer.purge()
        self._producer.flush(GRACE_S)

    def _connect(self) -> Producer:
        settings = self._client.settings(
            enable_idempotence=True,
            enable_gapless_guarantee=True,
            acks="all",
            delivery_timeout_ms=int(self._delivery_timeout_s * 1000),
            linger_ms=LINGER_MS,
            batch_size=MAX_REQUEST_BYTES,
            message_max_bytes=MAX_REQUEST_BYTES,
            queue_buffering_max_messages=MAX_QUEUED_RECORDS,
            queue_buffering_max_kbytes=MAX_QUEUED_KBYTES,
            retry_backoff_ms=50,
            retry_backoff_max_ms=500,
        )
        return Producer({**settings, "error_cb": self._complain}, logger=self._client.logger)

    def _complain(self, error: KafkaError) -> None:
        self._complaint = error
        self._broken = self._broken or error.fatal()

    def _send(
        self,
        producer: Producer,
        target: tuple[str, int],
        entries: Sequence[Entry],
        delivery: _Delivery,
        deadline: float,
    ) -> None:
        """Hand the entries to librdkafka, waiting for places in its queue."""
        name, partition = target
        produce = producer.produce
        last = len(entries) - 1
        sent = 0
        while True:
            try:
                if sent == 0 and last > 0:
                    produce(name, entries[0].value, entries[0].key, partition, delivery.report_first)
                    sent = 1
                for key, value in entries[sent:last]:
                    produce(name, value, key, partition)
                    sent += 1
                produce(name, entries[last].value, entries[last].key, partition, delivery.report_last)
                return
            except BufferError:
                if time.monotonic() >= deadline:
                    delivery.finish(KafkaError(KafkaError._QUEUE_FULL))  # noqa: SLF001 - a public name of theirs
                    return
                self._serve(producer, delivery)
            except KafkaException as error:
                if error.args[0].code() in FORGOTTEN and sent == 0 and time.monotonic() < deadline:
                    time.sleep(FORGOTTEN_PAUSE_S)
                    continue
                delivery.finish(error.args[0])
                return

    def _serve(self, producer: Producer, delivery: _Delivery) -> None:
        """Send what waits and serve reports, or wait while another thread does."""
        with self._turn:
            if delivery.done:
                return
            if self._serving:
                self._turn.wait(TURN_S)
                return
            self._serving = True
        try:
            producer.flush(TURN_S)
        except KafkaException as error:  # this producer cannot go on: have everything reported that it still holds
            self._complain(error.args[0])
            producer.purge()
            producer.poll(TURN_S)
        finally:
            with self._turn:
                self._serving = False
                self._turn.notify_all()

    def _offsets(
        self, name: str, partition: int, entries: Sequence[Entry], delivery: _Delivery, *, in_time: bool
    ) -> Sequence[int]:
        first, last = delivery.first, delivery.last
        if first is None or last is None or first < 0 or last < 0:
            # The broker took a repetition for one that it knows, and has forgotten, or never had, the records of.
            raise LogUnavailable(
                f"Kafka at {self._client.bootstrap} acknowledged records of '{name}' without saying where, so they may "
                "be missing: append them again"
            )
        if in_time and last - first == len(entries) - 1:
            return range(first, last + 1)
        return self._read_back(name, partition, entries, first, last)

    def _failure(self, producer: Producer, name: str, delivery: _Delivery) -> LogError:
        """Return the error for an append that failed; replace a producer that cannot go on."""
        cause = delivery.error
        if not delivery.done or self._broken or (cause is not None and cause.code() in LOST):
            self._replace(producer)
        if cause is not None and cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return LogError(
                f"Kafka refused a record of '{name}' for its size, although gangline allows it: set the topic's "
                f"max.message.bytes to {MAX_REQUEST_BYTES:,} or more"
            )
        if cause is not None and cause.code() in REFUSALS:
            return LogError(f"Kafka at {self._client.bootstrap} refused '{name}': {cause.str()}")
        complaint = self._complaint.str() if self._complaint is not None else None
        reason = "; ".join(text for text in (cause.str() if cause else None, complaint) if text)
        return self._client.unavailable(f"an append to '{name}' within {self._delivery_timeout_s:g} s", reason)

    def _replace(self, producer: Producer) -> None:
        """Give up `producer`: what it still holds is not sent later, behind the back of an append that failed."""
        with self._turn:
            if self._closed or self._producer is not producer:
                return
            self._producer = self._connect()
            self._begun.clear()
            self._broken = False
        producer.purge()
        producer.poll(0)
