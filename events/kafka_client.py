"""What every connection to Kafka shares: where it goes, how long it waits, and how it words a failure."""

import logging
from typing import Any

from confluent_kafka import KafkaError

from gangline.events.log import LogUnavailable

logger = logging.getLogger("gangline.kafka")
# Without a handler of its own Python would print librdkafka's complaints on users' terminals; errors reach them as
# exceptions, and whoever configures logging still sees these.
logger.addHandler(logging.NullHandler())


class Client:
    """The address of a Kafka cluster, and the patience with it."""

    def __init__(self, bootstrap: str, connect_timeout_s: float, response_timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.connect_timeout_s = connect_timeout_s
        self.response_timeout_s = response_timeout_s
        self.logger = logger

    def settings(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - librdkafka's settings have many types
        """Return librdkafka's settings for any kind of connection; `more` names them with `_` for `.`."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "gangline",
            # A broker that comes back is found at once; librdkafka's own default waits up to 10 s.
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
            # A broker that accepts and never answers is given up after this.
            "socket.timeout.ms": 10_000,
            "socket.keepalive.enable": True,
            # It would log each vain attempt to connect, many a second; the error that is raised says it once.
            "log_level": 2,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def unavailable(self, when: str, cause: KafkaError | str | None = None) -> LogUnavailable:
        """Return the error to raise when Kafka did not answer."""
        detail = cause.str() if isinstance(cause, KafkaError) else cause
        return LogUnavailable(
            f"Kafka at {self.bootstrap} did not answer {when}{f' ({detail})' if detail else ''}: "
            "check that the address is right and that the broker runs"
        )
