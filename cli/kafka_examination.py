"""Looks at the topics of a log on Kafka: partitions, replicas, retention."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from gangline.cli.examination import Finding
from gangline.events.log import CONTROL, DECISIONS, PARTITIONS, LogUnavailable

TIMEOUT_S = 10.0
"""How long Kafka may take to describe its topics."""

FOR_EVER = "-1"


def examine_kafka(url: str) -> Iterator[Finding]:
    """Yield what there is to say of each topic of `kafka://HOST:PORT/PREFIX`. Raises LogUnavailable."""
    bootstrap, prefix = _parts(url)
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": int(TIMEOUT_S * 1000)})
    try:
        known = admin.list_topics(timeout=TIMEOUT_S).topics
        for topic, partitions in PARTITIONS.items():
            name = f"{prefix}.{topic}"
            if name not in known:
                yield Finding(f"topic {name}", "wrong", "it does not exist", "restore it from a copy")
                continue
            found = len(known[name].partitions)
            if found != partitions:
                mend = (
                    "keys have moved between partitions: restore it from a copy" if found > partitions else "restore it"
                )
                yield Finding(f"topic {name}", "wrong", f"{found} partitions, not {partitions}", mend)
            yield from _retention(admin, topic, name)
            replicas = min(len(one.replicas) for one in known[name].partitions.values())
            mend = (
                "" if replicas > 1 else "give it 3 replicas (kafka-reassign-partitions.sh), unless this is for trials"
            )
            yield Finding(f"topic {name}", "ok" if replicas > 1 else "warning", f"{replicas} replicas", mend)
    except KafkaException as error:
        raise LogUnavailable(f"Kafka at {bootstrap} does not describe its topics: {error}") from error


def bounds(url: str, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset that Kafka still keeps of a partition, and its end. Raises LogUnavailable."""
    bootstrap, prefix = _parts(url)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "gangline"})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(f"{prefix}.{topic}", partition), timeout=TIMEOUT_S)
        return int(first), int(end)
    except (KafkaException, TypeError) as error:
        raise LogUnavailable(f"Kafka at {bootstrap} does not say where '{topic}' ends: {error}") from error
    finally:
        consumer.close()


def _parts(url: str) -> tuple[str, str]:
    bootstrap, _, prefix = url.removeprefix("kafka://").partition("/")
    return bootstrap, prefix.rstrip("/")


def _retention(admin: AdminClient, topic: str, name: str) -> Iterator[Finding]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    settings = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
    if topic not in {CONTROL, DECISIONS}:
        return
    for setting in ("retention.ms", "retention.bytes"):
        if settings[setting].value != FOR_EVER:
            mend = f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {setting}=-1"
            yield Finding(f"topic {name}", "wrong", f"{setting} is {settings[setting].value}: records are lost", mend)
    if settings["cleanup.policy"].value != "delete":
        mend = f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config cleanup.policy=delete"
        yield Finding(f"topic {name}", "wrong", f"cleanup.policy is {settings['cleanup.policy'].value}", mend)
