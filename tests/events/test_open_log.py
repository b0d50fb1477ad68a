"""Opening a log by its URL."""

from pathlib import Path

import pytest

from gangline.events.log import CONTROL, Entry, Log
from gangline.events.open_log import open_log
from gangline.schemas.errors import UsageError


def keeps_a_record(log: Log) -> bool:
    log.append(CONTROL, [Entry(b"job-1", b"a")])
    reader = log.reader(CONTROL)
    found = [record.value for batch in reader.read_to_end() for record in batch]
    reader.close()
    log.close()
    return found == [b"a"]


def test_memory_needs_nothing() -> None:
    assert keeps_a_record(open_log("memory:"))


@pytest.mark.parametrize("slashes", ["", "//"])
def test_sqlite_takes_a_folder(tmp_path: Path, slashes: str) -> None:
    assert keeps_a_record(open_log(f"sqlite:{slashes}{tmp_path / 'log'}", create=True))
    assert (tmp_path / "log").is_dir()


def test_kafka_takes_brokers_and_a_prefix(kafka_bootstrap: str, kafka_prefix: str) -> None:
    assert keeps_a_record(open_log(f"kafka://{kafka_bootstrap}/{kafka_prefix}", create=True))


@pytest.mark.parametrize(
    "url",
    ["", "redis://localhost", "/var/lib/log", "memory:x", "sqlite:", "kafka:localhost:9092/a", "kafka://host:1",
     "kafka://host/a", "kafka://host:1,other/a"],
)  # fmt: skip
def test_what_names_no_log_is_a_usage_error_that_names_the_valid_ones(url: str) -> None:
    with pytest.raises(UsageError, match=r"names no log: use memory:, sqlite:FOLDER or kafka://HOST:PORT"):
        open_log(url)


def test_a_prefix_that_kafka_cannot_hold_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'a b' cannot prefix"):
        open_log("kafka://host:1/a b")
