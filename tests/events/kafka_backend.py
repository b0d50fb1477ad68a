"""The Kafka log as the contract suite opens it."""

from typing import Any

from confluent_kafka.admin import AdminClient

from gangline.events.kafka import KafkaLog
from gangline.events.log import PARTITIONS


class KafkaBackend:
    """A log under a prefix of its own; every `open` is one more user of it."""

    kind = "kafka"

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self._opened: list[KafkaLog] = []

    def open(self) -> KafkaLog:
        log = KafkaLog(self.bootstrap, prefix=self.prefix, create=True)
        self._opened.append(log)
        return log

    def description(self) -> dict[str, Any] | None:
        return {"kind": self.kind, "bootstrap": self.bootstrap, "prefix": self.prefix}

    def close(self) -> None:
        for log in self._opened:
            log.close()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for deleted in admin.delete_topics([f"{self.prefix}.{topic}" for topic in PARTITIONS]).values():
            deleted.exception()
