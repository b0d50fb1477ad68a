"""A broker that stops, is killed, is not there, or whose disk lies: all ends in time, nothing acknowledged is lost."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local_kafka import HOST, LocalKafka, free_port
from gangline.events.kafka import KafkaLog
from gangline.events.log import CONTROL, START, LogDamaged, LogError, LogUnavailable, Record
from tests import services
from tests.events.kafka_backend import KafkaBackend
from tests.events.log_contract import WAIT_S, Worker, content, entries, everything, numbers_by_writer, rest


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    services.require_java()
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def broker(started: LocalKafka) -> LocalKafka:
    """Return a broker that the test may stop and kill; the next test finds it started again."""
    return started.start()


@pytest.fixture
def backend(broker: LocalKafka, kafka_prefix: str) -> Iterator[KafkaBackend]:
    backend = KafkaBackend(broker.bootstrap, kafka_prefix)
    yield backend
    broker.start()
    backend.close()


@pytest.mark.slow
def test_processes_append_through_outages_and_nothing_is_lost_or_doubled(
    broker: LocalKafka, backend: KafkaBackend, tmp_path: Path
) -> None:
    log = backend.open()
    follower = log.reader(CONTROL)
    seen: list[Record] = []
    stop = tmp_path / "stop"
    workers = [
        Worker(backend, "append_until", topic=CONTROL, writer=writer, batch=5, stop=str(stop)) for writer in range(3)
    ]
    for end_broker in (broker.stop, broker.kill):
        for worker in workers:
            worker.wait_for("acked")
        seen += follower.read(timeout_s=WAIT_S)
        end_broker()
        broker.start()
        stored = numbers_by_writer(everything(log))
        for writer, worker in enumerate(workers):  # all of them go on
            while int(worker.wait_for("acked").split()[1]) <= len(stored[writer]):
                pass
    stop.touch()
    for worker in workers:
        worker.join()
    records = everything(log)
    stored = numbers_by_writer(records)
    for writer, worker in enumerate(workers):
        numbers = stored[writer]
        if any(line.startswith("again") for line in worker.lines):  # only an append that failed may be stored twice
            numbers = sorted(set(numbers))
        assert numbers == list(range(worker.acked))
    assert [record.index for record in records] == list(range(len(records)))
    assert seen + rest(follower) == records


@pytest.mark.slow
def test_a_broker_that_stays_away_ends_every_wait_and_all_go_on_when_it_returns(
    broker: LocalKafka, backend: KafkaBackend
) -> None:
    backend.open().append(CONTROL, entries(b"before"))
    log = KafkaLog(broker.bootstrap, prefix=backend.prefix, delivery_timeout_s=2.0, response_timeout_s=1.0)
    reader = log.reader(CONTROL)
    assert [record.value for record in rest(reader)] == [b"before"]
    broker.stop()
    with pytest.raises(LogUnavailable, match=f"{broker.bootstrap} did not answer an append .* within 2 s .*refused"):
        log.append(CONTROL, entries(b"lost"))
    with pytest.raises(LogUnavailable, match=f"{broker.bootstrap} did not answer about the end"):
        reader.read(timeout_s=WAIT_S)
    with pytest.raises(LogUnavailable, match="check that the address is right and that the broker runs"):
        rest(reader)
    with pytest.raises(LogUnavailable):
        log.reader(CONTROL)
    broker.start()
    log.append(CONTROL, entries(b"after"))
    found = rest(reader)
    assert [record.value for record in found] in ([b"after"], [b"lost", b"after"])
    log.close()


def test_a_broker_that_is_not_there_is_named_when_the_log_is_opened() -> None:
    nobody = f"{HOST}:{free_port()}"
    with pytest.raises(LogUnavailable, match=f"Kafka at {nobody} did not answer within 0.5 s"):
        KafkaLog(nobody, prefix="a", connect_timeout_s=0.5)


def test_a_failed_connection_leaves_the_terminal_to_the_error() -> None:
    code = (
        "from gangline.events.kafka import KafkaLog\n"
        "from gangline.events.log import LogUnavailable\n"
        "try:\n"
        f"    KafkaLog('{HOST}:{free_port()}', prefix='a', connect_timeout_s=0.5)\n"
        "except LogUnavailable as error:\n"
        "    print('unavailable')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("unavailable\n", "")


def test_a_waiting_append_fails_when_the_log_is_closed(broker: LocalKafka, backend: KafkaBackend) -> None:
    log = backend.open()
    log.append(CONTROL, entries(b"a"))
    broker.kill()
    closing = threading.Timer(0.3, log.close)
    closing.start()
    with pytest.raises(LogUnavailable):
        log.append(CONTROL, entries(b"b"))
    closing.join()
    with pytest.raises(LogError, match="is closed"):
        log.append(CONTROL, entries(b"c"))


def test_a_damaged_batch_is_named_and_never_passed(broker: LocalKafka, backend: KafkaBackend) -> None:
    log = backend.open()
    for value in (b"first", b"second", b"third"):
        log.append(CONTROL, entries(value * 10))
    stored = Path(broker.data, "log", f"{backend.prefix}.{CONTROL}-0", f"{0:020d}.log")
    at = stored.read_bytes().index(b"second") + 20
    with stored.open("r+b") as file:
        file.seek(at)
        file.write(b"!")
    for reader in (log.reader(CONTROL), log.reader(CONTROL, START)):
        seen: list[Record] = []
        for _ in range(3):
            with pytest.raises(LogDamaged, match=rf"{CONTROL}' is damaged in partition 0 after record 1: .*CRC32C"):
                seen.extend(record for batch in reader.read_to_end() for record in batch)
        assert content(seen) == [(b"job-1", b"first" * 10)]
