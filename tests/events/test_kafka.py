"""The log on Kafka keeps the contract."""

from collections.abc import Iterator

import pytest

from tests.events.kafka_backend import KafkaBackend
from tests.events.log_contract import LogContract


class TestKafkaLog(LogContract):
    @pytest.fixture
    def backend(self, kafka_bootstrap: str, kafka_prefix: str) -> Iterator[KafkaBackend]:
        backend = KafkaBackend(kafka_bootstrap, kafka_prefix)
        yield backend
        backend.close()
