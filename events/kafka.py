"""The log on Apache Kafka: opening it, and creating its topics.

Correctness rests on nothing but ordered, durable partitions: the producer is idempotent and waits for all in-sync
replicas, partitions are chosen by the caller, and readers hide what a foreign transaction aborted. A topic `control`
of the cluster `prefix` is Kafka's topic `<prefix>.control`.
"""

import re
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from gangline.events.kafka_client import Client
from gangline.events.kafka_reader import KafkaReader, open_probe
from gangline.events.kafka_writer import KafkaWriter
from gangline.events.log import HEARTBEATS, PARTITIONS, START, Address, Entry, LogError, LogUnavailable, Position
from gangline.schemas.errors import UsageError

REPLICAS = 3
"""Copies of each partition, where the cluster has that many brokers; a majority of them acknowledges."""

MAX_BATCH_BYTES = 1_048_588
"""What a topic accepts as one batch (Kafka's own default): the largest record with room for its envelope."""

KEPT_MS = {HEARTBEATS: 7 * 24 * 3600 * 1000}
"""How long Kafka keeps a topic's records, in milliseconds; a topic not named here is kept for ever."""

PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")


class KafkaLog:
    """A log whose topics live on a Kafka cluster.

    `bootstrap` is host:port[,host:port]; `prefix` names gangline's cluster, so that several share one Kafka; `create`
    makes the topics that are missing. Bounds, each ending in LogUnavailable: opening takes at most `connect_timeout_s`;
    an append `delivery_timeout_s` and a second or two; a reader that Kafka does not answer says so after
    `response_timeout_s` and a second or two.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        prefix: str,
        create: bool = False,
        connect_timeout_s: float = 10.0,
        delivery_timeout_s: float = 30.0,
        response_timeout_s: float = 30.0,
    ) -> None:
        if not PREFIX.fullmatch(prefix):
            raise UsageError(f"'{prefix}' cannot prefix Kafka's topics: use at most 200 letters, digits, '.', '_', '-'")
        self._prefix = prefix
        self._client = Client(bootstrap, connect_timeout_s, response_timeout_s)
        self._lock = threading.Lock()
        self._writer = KafkaWriter(self._client, delivery_timeout_s, self._read_back)
        _check_topics(self._client, self._writer, self._names(), create=create)
        self._probe = open_probe(self._client)

    def append(self, topic: str, entries: Sequence[Entry], *, partition: int = 0) -> list[Address]:
        """Append durably, in order; see the protocol."""
        return self._writer.append(topic, self._name(topic), entries, partition)

    def reader(self, topic: str, position: Position = START, *, partition: int = 0) -> KafkaReader:
        """Return a reader at `position`; see the protocol."""
        return KafkaReader(self._client, self._probe, self._name(topic), partition, position)

    def close(self) -> None:
        """Release the connections; an append still under way in another thread fails with LogUnavailable."""
        self._writer.close()
        with self._lock:
            self._probe.close()

    def _read_back(self, name: str, partition: int, entries: Sequence[Entry], first: int, last: int) -> list[int]:
        """Return the offsets between `first` and `last` at which `entries` lie, in their order."""
        reader = KafkaReader(self._client, self._probe, name, partition, Position(0, first))
        try:
            found: list[int] = []
            for records in reader.read_to_end():
                for record in records:
                    if len(found) < len(entries) and (record.key, record.value) == entries[len(found)]:
                        found.append(record.offset)
                if len(found) == len(entries):
                    return found
        finally:
            reader.close()
        raise LogUnavailable(
            f"Kafka at {self._client.bootstrap} acknowledged {len(entries):,} records of '{name}' between {first} and "
            f"{last}, and holds {len(found):,} of them there: append them again"
        )

    def _name(self, topic: str) -> str:
        if topic not in PARTITIONS:
            raise LogError(f"there is no topic '{topic}'; the topics are {', '.join(PARTITIONS)}")
        return f"{self._prefix}.{topic}"

    def _names(self) -> dict[str, str]:
        return {topic: self._name(topic) for topic in PARTITIONS}


def _check_topics(client: Client, writer: KafkaWriter, names: dict[str, str], *, create: bool) -> None:
    """Check that every topic is there with its partitions, or create those missing."""
    brokers, partitions = writer.cluster()
    missing = [topic for topic, name in names.items() if name not in partitions]
    if missing and not create:
        raise LogError(
            f"Kafka at {client.bootstrap} has no topic '{names[missing[0]]}': check the prefix, or create the topics "
            "with `gangline up` or with create=True"
        )
    for topic, name in names.items():
        if topic not in missing and partitions[name] != PARTITIONS[topic]:
            raise LogError(
                f"Kafka's topic '{name}' has {partitions[name]} partitions and must have "
                f"{PARTITIONS[topic]}: use another prefix; a topic's partitions cannot be taken back"
            )
    if missing:
        _create_topics(client, [_new_topic(topic, names[topic], brokers) for topic in missing])
        _await_topics(client, writer, names)


def _await_topics(client: Client, writer: KafkaWriter, names: dict[str, str]) -> None:
    """Wait until the brokers know of topics that the controller has created."""
    deadline = time.monotonic() + client.connect_timeout_s
    while not set(names.values()) <= writer.cluster()[1].keys():
        if time.monotonic() >= deadline:
            raise client.unavailable(f"within {client.connect_timeout_s:g} s with the topics that it created")
        time.sleep(0.02)


def _new_topic(topic: str, name: str, brokers: int) -> NewTopic:
    replicas = min(REPLICAS, brokers)
    return NewTopic(
        name,
        num_partitions=PARTITIONS[topic],
        replication_factor=replicas,
        config={
            "cleanup.policy": "delete",
            "retention.ms": str(KEPT_MS.get(topic, -1)),
            "retention.bytes": "-1",
            "max.message.bytes": str(MAX_BATCH_BYTES),
            "min.insync.replicas": str(replicas // 2 + 1),
            "unclean.leader.election.enable": "false",
            # A producer's wrong clock must neither get its records refused nor age them early.
            "message.timestamp.type": "LogAppendTime",
        },
    )


def _create_topics(client: Client, topics: list[NewTopic]) -> None:
    admin = AdminClient(client.settings(), logger=client.logger)
    timeout_s = client.connect_timeout_s
    made = admin.create_topics(topics, operation_timeout=timeout_s, request_timeout=timeout_s)
    for name, future in made.items():
        try:
            future.result()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue  # another process was quicker
            if cause.retriable() or cause.code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT):  # noqa: SLF001 - confluent-kafka's public name for it
                raise client.unavailable(f"while creating '{name}'", cause) from error
            raise LogError(f"Kafka at {client.bootstrap} refused to create '{name}': {cause.str()}") from error
