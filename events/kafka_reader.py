"""Reading from Kafka: one partition, in order, from a position, with nothing skipped silently."""

import time
from collections.abc import Iterator, Sequence

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from gangline.events.kafka_client import Client
from gangline.events.log import LogCut, LogDamaged, LogError, Position, Record

PREFETCHED_KBYTES = 32_768
"""What a reader holds in memory ahead of its caller, in KiB."""

FETCH_WAIT_MS = 250
"""How long a broker holds back its answer while there is nothing new; new records are sent at once."""

SLICE_S = 1.0
"""A long wait looks this often whether Kafka still answers."""

# confluent-kafka's public names for librdkafka's own errors begin with an underscore.
END = KafkaError._PARTITION_EOF  # noqa: SLF001
CUT = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001
DAMAGE = frozenset(
    {
        KafkaError._BAD_MSG,  # noqa: SLF001 - a checksum that does not match, or a batch that is none
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001 - a batch of an unknown format
        KafkaError.INVALID_MSG,
    }
)


def _settings(client: Client) -> dict[str, object]:
    return client.settings(
        group_id="gangline",  # librdkafka wants one; partitions are assigned by hand, and no offset is committed
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        auto_offset_reset="error",
        check_crcs=True,
        allow_auto_create_topics=False,
        fetch_wait_max_ms=FETCH_WAIT_MS,
        fetch_error_backoff_ms=100,
        fetch_queue_backoff_ms=50,
        queued_max_messages_kbytes=PREFETCHED_KBYTES,
    )


def open_probe(client: Client) -> Consumer:
    """Return a connection that asks for the ends of partitions; it may be used by several threads."""
    # Not what is committed but all that is acknowledged: an open transaction of another program hides later records.
    return Consumer({**_settings(client), "isolation.level": "read_uncommitted"}, logger=client.logger)


class KafkaReader:
    """Reads a partition of a KafkaLog; see the protocol."""

    def __init__(self, client: Client, probe: Consumer, name: str, partition: int, position: Position) -> None:
        self._client = client
        self._probe = probe
        self._name = name
        self._partition = partition
        self._position = position
        self._reached = position.offset
        self._failure: LogError | None = None
        self._complaint: KafkaError | None = None
        self._silent_since_s: float | None = None
        first, end = self._ends(client.response_timeout_s)
        if position.offset > end:
            raise self._cut(f"lies beyond its end, {end}")
        if position.offset < first:
            raise self._cut(f"lies before its beginning, {first}")
        self._consumer: Consumer | None = None
        self._closed = False

    @property
    def position(self) -> Position:
        """Just behind the last record returned."""
        return self._position

    def read(self, limit: int = 10_000, *, timeout_s: float = 0.0) -> list[Record]:
        """Return the next records; see the protocol."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            records = self._poll(limit, min(left_s, SLICE_S))
            if records or left_s <= 0:
                return records

    def read_to_end(self, limit: int = 10_000) -> Iterator[list[Record]]:
        """Yield batches until the end as it was at the call; see the protocol.

        The end is asked of the partition's leader; it is reached by its last record, or, when that is none to return
        (the mark of a transaction, an aborted record), by the notice that everything before has been read.
        """
        timeout_s = self._client.response_timeout_s
        _, end = self._ends(timeout_s)
        reached, since_s = self._reached, time.monotonic()
        while self._reached < end:
            records = self._poll(limit, min(SLICE_S, timeout_s))
            if records:
                yield records
            if self._reached > reached:
                reached, since_s = self._reached, time.monotonic()
            elif time.monotonic() - since_s > timeout_s:
                raise self._client.unavailable(
                    f"with the records of '{self._name}' from {reached} to {end} within {timeout_s:g} s",
                    "or a transaction of another program holds them back",
                )

    def close(self) -> None:
        """Close the connection. Twice is fine."""
        self._closed = True
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _connection(self) -> Consumer:
        """Return the consumer, connected by the first read: whoever only asks whether a position exists needs none."""
        if self._closed:
            raise LogError(f"this reader of '{self._name}' is closed")
        if self._consumer is None:
            settings = {**_settings(self._client), "isolation.level": "read_committed", "error_cb": self._complain}
            self._consumer = Consumer(settings, logger=self._client.logger)
            self._consumer.assign([TopicPartition(self._name, self._partition, self._position.offset)])
        return self._consumer

    def _poll(self, limit: int, timeout_s: float) -> list[Record]:
        """Return what comes next, which may be no record but the notice that the end was reached, or a complaint."""
        if self._failure is not None:
            raise self._failure
        consumer = self._connection()
        # consume() alone would wait until it has `limit` records.
        message = consumer.poll(timeout_s)
        if message is None:
            self._check_contact()
            return []
        return self._take([message, *consumer.consume(limit - 1, timeout=0)] if limit > 1 else [message])

    def _take(self, messages: Sequence[Message]) -> list[Record]:
        """Return the messages' records up to the first failure, which the next call raises."""
        records: list[Record] = []
        index = self._position.index
        add = records.append
        failure: KafkaError | None = None
        for message in messages:
            error = message.error()
            if error is None:
                add(Record(index, message.offset() or 0, message.key() or b"", message.value() or b""))
                index += 1
            elif error.code() == END:
                self._reached = max(self._reached, message.offset() or 0)
                self._silent_since_s = None
            else:
                failure = error
                break  # what comes after a failure may not be what follows in the log
        if records:
            self._position = records[-1].after
            self._reached = max(self._reached, self._position.offset)
            self._silent_since_s = None
        if failure is not None:
            self._note(failure)
        return records

    def _note(self, error: KafkaError) -> None:
        """Remember what went wrong: for ever if records are damaged or gone, else until Kafka answers again."""
        if error.code() in DAMAGE:
            self._failure = LogDamaged(
                f"Kafka's topic '{self._name}' is damaged in partition {self._partition} after record "
                f"{self._position.index}: {error.str()}. Restore it from a replica or a backup"
            )
        elif error.code() in CUT:
            self._failure = self._cut(f"is gone: {error.str()}")
        else:
            self._complain(error)

    def _complain(self, error: KafkaError) -> None:
        self._complaint = error
        if self._silent_since_s is None:
            self._silent_since_s = time.monotonic()

    def _check_contact(self) -> None:
        """Raise LogUnavailable if Kafka has been silent for too long after a complaint."""
        since_s = self._silent_since_s
        if since_s is None or time.monotonic() - since_s < self._client.response_timeout_s:
            return
        self._ends(SLICE_S)
        self._silent_since_s = None

    def _ends(self, timeout_s: float) -> tuple[int, int]:
        """Return the first offset and the one behind the last, as the partition's leader knows them now."""
        target = TopicPartition(self._name, self._partition)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                ends = self._probe.get_watermark_offsets(target, timeout=max(0.1, deadline - time.monotonic()))
            except KafkaException as error:
                cause: KafkaError | None = error.args[0]
            except RuntimeError as error:
                raise LogError(f"the log at {self._client.bootstrap} is closed") from error
            else:
                if ends[1] != OFFSET_INVALID:
                    return ends
                cause = None
            if time.monotonic() >= deadline:
                when = f"about the end of '{self._name}' within {timeout_s:g} s"
                raise self._client.unavailable(when, cause or self._complaint)
            time.sleep(0.05)

    def _cut(self, why: str) -> LogCut:
        return LogCut(
            f"position {self._position.index} at offset {self._position.offset} of Kafka's topic '{self._name}', "
            f"partition {self._partition}, {why}: the log was cut or replaced; restore it"
        )
