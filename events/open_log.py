"""Opening a log by its URL."""

from pathlib import Path

from gangline.events.log import Log
from gangline.schemas.errors import UsageError

VALID = "memory:, sqlite:FOLDER or kafka://HOST:PORT[,HOST:PORT]/PREFIX"


def open_log(url: str, *, create: bool = False) -> Log:
    """Open the log that `url` names; `create` makes what is missing of it.

    `memory:` lives as long as the returned object; `sqlite:FOLDER` keeps its files in a folder of this machine;
    `kafka://HOST:PORT[,HOST:PORT]/PREFIX` uses Kafka's topics PREFIX.control and so on.

    Raises UsageError, and what the backend raises when it cannot be opened.
    """
    # Each backend brings a library, and a process needs one of them.
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest:
        from gangline.events.memory import MemoryLog  # noqa: PLC0415

        return MemoryLog()
    if scheme == "sqlite" and rest:
        from gangline.events.sqlite import SqliteLog  # noqa: PLC0415

        return SqliteLog(Path(rest.removeprefix("//")), create=create)
    if scheme == "kafka" and rest.startswith("//"):
        bootstrap, _, prefix = rest.removeprefix("//").partition("/")
        if bootstrap and prefix and all(":" in broker for broker in bootstrap.split(",")):
            from gangline.events.kafka import KafkaLog  # noqa: PLC0415

            return KafkaLog(bootstrap, prefix=prefix.rstrip("/"), create=create)
    raise UsageError(f"'{url}' names no log: use {VALID}")
