"""Kafka's offsets have gaps, and its topics lose their beginning: readers neither hang, nor skip, nor count wrongly."""

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from gangline.events.kafka import KafkaLog
from gangline.events.log import CONTROL, DECISIONS, HEARTBEATS, Entry, LogCut, LogError, LogUnavailable, Position
from tests.events.kafka_backend import KafkaBackend
from tests.events.log_contract import WAIT_S, entries, everything, rest


@pytest.fixture
def backend(kafka_bootstrap: str, kafka_prefix: str) -> Iterator[KafkaBackend]:
    backend = KafkaBackend(kafka_bootstrap, kafka_prefix)
    yield backend
    backend.close()


@pytest.fixture
def log(backend: KafkaBackend) -> KafkaLog:
    return backend.open()


@pytest.fixture
def transactions(backend: KafkaBackend) -> Producer:
    """Another program that writes to the topic in transactions."""
    producer = Producer({"bootstrap.servers": backend.bootstrap, "transactional.id": backend.prefix, "log_level": 0})
    producer.init_transactions(WAIT_S)
    return producer


def write(transactions: Producer, backend: KafkaBackend, value: bytes) -> None:
    transactions.begin_transaction()
    transactions.produce(f"{backend.prefix}.{CONTROL}", value, b"foreign", 0)
    transactions.flush(WAIT_S)


def test_indices_are_dense_where_transactions_leave_gaps_in_the_offsets(
    backend: KafkaBackend, log: KafkaLog, transactions: Producer
) -> None:
    [first] = log.append(CONTROL, entries(b"a"))
    write(transactions, backend, b"aborted")
    transactions.abort_transaction()
    write(transactions, backend, b"committed")
    transactions.commit_transaction()
    [last] = log.append(CONTROL, entries(b"b"))
    records = everything(log)
    assert [(record.index, record.value) for record in records] == [(0, b"a"), (1, b"committed"), (2, b"b")]
    assert [record.offset for record in records] == [first.offset, 3, last.offset]
    assert first.offset == 0
    for record in records:
        later = rest(log.reader(CONTROL, record.after))
        assert later == records[record.index + 1 :]


@pytest.mark.parametrize("commit", [True, False])
def test_reading_to_the_end_ends_at_the_mark_of_a_transaction(
    backend: KafkaBackend, log: KafkaLog, transactions: Producer, commit: bool
) -> None:
    log.append(CONTROL, entries(b"a"))
    reader = log.reader(CONTROL)
    write(transactions, backend, b"foreign")
    transactions.commit_transaction() if commit else transactions.abort_transaction()
    found = rest(reader)
    assert [record.value for record in found] == ([b"a", b"foreign"] if commit else [b"a"])
    assert rest(reader) == []
    assert rest(log.reader(CONTROL, reader.position)) == []
    log.append(CONTROL, entries(b"b"))
    assert [(record.index, record.value) for record in rest(reader)] == [(len(found), b"b")]


def test_reading_to_the_end_waits_for_what_an_open_transaction_hides(
    backend: KafkaBackend, log: KafkaLog, transactions: Producer
) -> None:
    reader = log.reader(CONTROL)
    write(transactions, backend, b"aborted")
    log.append(CONTROL, entries(b"acknowledged"))
    assert reader.read(timeout_s=0.5) == []  # it saw the end, as far as it is visible, before the call below
    ending = threading.Timer(0.3, transactions.abort_transaction)
    ending.start()
    assert [record.value for record in rest(reader)] == [b"acknowledged"]
    ending.join()


def test_reading_to_the_end_gives_up_on_a_transaction_that_stays_open(
    backend: KafkaBackend, transactions: Producer
) -> None:
    backend.open()
    write(transactions, backend, b"open")
    impatient = KafkaLog(backend.bootstrap, prefix=backend.prefix, response_timeout_s=0.5)
    with pytest.raises(LogUnavailable, match="transaction of another program holds them back"):
        everything(impatient)
    impatient.close()
    transactions.abort_transaction()


def cut(backend: KafkaBackend, before_offset: int) -> None:
    """Delete the records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": backend.bootstrap})
    for deleted in admin.delete_records(
        [TopicPartition(f"{backend.prefix}.{CONTROL}", 0, before_offset)]
    ).values():  # fmt: skip
        deleted.result(WAIT_S)


def test_a_position_before_the_beginning_says_that_the_log_was_cut(backend: KafkaBackend, log: KafkaLog) -> None:
    log.append(CONTROL, entries(*(b"%d" % number for number in range(10))))
    cut(backend, 5)
    for position in (Position(0, 0), Position(4, 4)):
        with pytest.raises(LogCut, match=f"position {position.index} at offset .* lies before its beginning, 5"):
            log.reader(CONTROL, position)
    assert [record.value for record in rest(log.reader(CONTROL, Position(5, 5)))] == [b"5", b"6", b"7", b"8", b"9"]


def test_a_reader_whose_records_are_deleted_meanwhile_never_skips_them(backend: KafkaBackend, log: KafkaLog) -> None:
    value = bytes(200_000)
    for _ in range(10):
        log.append(CONTROL, entries(*[value] * 20))  # 40 MB in all, more than a reader holds ahead
    reader = log.reader(CONTROL)
    seen = reader.read(1, timeout_s=WAIT_S)
    cut(backend, 199)
    with pytest.raises(LogCut, match="cut or replaced"):
        seen.extend(record for batch in iter(lambda: reader.read(timeout_s=WAIT_S), []) for record in batch)
    assert [record.index for record in seen] == [record.offset for record in seen] == list(range(len(seen)))
    assert len(seen) < 199
    with pytest.raises(LogCut):
        reader.read(timeout_s=WAIT_S)


def test_prefixes_keep_logs_on_one_kafka_apart(backend: KafkaBackend, log: KafkaLog) -> None:
    other_backend = KafkaBackend(backend.bootstrap, f"{backend.prefix}-b")
    other = other_backend.open()
    log.append(CONTROL, entries(b"ours"))
    other.append(CONTROL, entries(b"theirs"))
    assert [record.value for record in everything(log)] == [b"ours"]
    assert [record.value for record in everything(other)] == [b"theirs"]
    other_backend.close()


def test_records_between_which_another_producer_wrote_get_their_own_addresses(log: KafkaLog) -> None:
    ours = entries(b"a", b"b", b"c")
    addresses = []
    for entry in ours:
        addresses += log.append(CONTROL, [entry])
        log.append(CONTROL, entries(b"theirs", key=b"job-2"))
    first, last = addresses[0].offset, addresses[-1].offset
    assert log._read_back(f"{log._prefix}.{CONTROL}", 0, ours, first, last) == [0, 2, 4]
    with pytest.raises(LogUnavailable, match="append them again"):
        log._read_back(f"{log._prefix}.{CONTROL}", 0, [*ours, Entry(b"job-1", b"never written")], first, last)


def test_many_large_records_wait_for_places_and_keep_their_order(log: KafkaLog) -> None:
    count = 300  # 150 MB, more than the producer queues at once, in many requests
    addresses = log.append(DECISIONS, [Entry(b"", b"%d:" % number + bytes(500_000)) for number in range(count)])
    assert [address.offset for address in addresses] == list(range(count))
    reader = log.reader(DECISIONS)
    seen = 0
    for batch in reader.read_to_end(20):
        for record in batch:
            assert record.value.startswith(b"%d:" % seen)
            seen += 1
    assert seen == count
    reader.close()


def test_a_topic_that_takes_less_than_gangline_allows_refuses_clearly_and_the_log_goes_on(
    backend: KafkaBackend, log: KafkaLog
) -> None:
    admin = AdminClient({"bootstrap.servers": backend.bootstrap})
    name = f"{backend.prefix}.{CONTROL}"
    limit(admin, name, 1_000)
    with pytest.raises(LogError, match=r"set the topic's max\.message\.bytes to 1,000,000 or more"):
        append_until_the_new_limit_holds(log)
    limit(admin, name, 1_048_588)
    log.append(CONTROL, entries(b"again"))
    assert everything(log)[-1].value == b"again"


def limit(admin: AdminClient, name: str, size_bytes: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(WAIT_S)


def append_until_the_new_limit_holds(log: KafkaLog) -> None:
    """Kafka acknowledges a new limit before the broker applies it."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        log.append(CONTROL, entries(b"small", bytes(5_000)))


def test_topics_are_created_to_be_kept_and_to_hold_the_largest_record(backend: KafkaBackend) -> None:
    backend.open()
    admin = AdminClient({"bootstrap.servers": backend.bootstrap})
    kept = {}
    for topic in (CONTROL, DECISIONS, HEARTBEATS):
        resource = ConfigResource(ResourceType.TOPIC, f"{backend.prefix}.{topic}")
        [described] = admin.describe_configs([resource]).values()
        settings = {name: entry.value for name, entry in described.result(WAIT_S).items()}
        kept[topic] = settings["retention.ms"]
        assert settings["cleanup.policy"] == "delete"
        assert settings["retention.bytes"] == "-1"
        assert settings["max.message.bytes"] == "1048588"
        assert settings["message.timestamp.type"] == "LogAppendTime"
        assert settings["min.insync.replicas"] == "1"
    assert kept == {CONTROL: "-1", DECISIONS: "-1", HEARTBEATS: str(7 * 24 * 3600 * 1000)}


def test_opening_a_log_that_is_not_there_says_how_to_create_it(kafka_bootstrap: str, kafka_prefix: str) -> None:
    with pytest.raises(LogError, match=f"has no topic '{kafka_prefix}.control': check the prefix, or create"):
        KafkaLog(kafka_bootstrap, prefix=kafka_prefix)


def test_a_topic_with_other_partitions_is_refused(backend: KafkaBackend) -> None:
    from confluent_kafka.cimpl import NewPartitions

    backend.open()
    admin = AdminClient({"bootstrap.servers": backend.bootstrap})
    name = f"{backend.prefix}.{DECISIONS}"
    for changed in admin.create_partitions([NewPartitions(name, 3)]).values():
        changed.result(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while len(admin.list_topics(name, timeout=WAIT_S).topics[name].partitions) < 3:
        assert time.monotonic() < deadline
    with pytest.raises(LogError, match=r"decisions' has 3 partitions and must have 1: use another prefix"):
        backend.open()


def test_a_topic_that_gangline_does_not_have_is_refused(log: KafkaLog) -> None:
    with pytest.raises(LogError, match="there is no topic 'metric'; the topics are control"):
        log.append("metric", entries(b"a"))


def test_a_topic_that_is_replaced_by_a_shorter_one_stops_its_readers(backend: KafkaBackend, log: KafkaLog) -> None:
    log.append(CONTROL, entries(b"a", b"b", b"c"))
    reader = log.reader(CONTROL)
    assert len(rest(reader)) == 3
    backend.close()
    deadline = time.monotonic() + WAIT_S
    admin = AdminClient({"bootstrap.servers": backend.bootstrap})
    while f"{backend.prefix}.{CONTROL}" in admin.list_topics(timeout=WAIT_S).topics:
        assert time.monotonic() < deadline
    again = KafkaBackend(backend.bootstrap, backend.prefix)
    again.open().append(CONTROL, entries(b"x"))
    with pytest.raises((LogCut, LogUnavailable)):
        reader.read(timeout_s=WAIT_S)
    again.close()


def test_a_reader_of_a_closed_log_says_so(log: KafkaLog) -> None:
    reader = log.reader(CONTROL)
    reader.close()
    with pytest.raises(LogError, match=r"reader of .* is closed"):
        reader.read()
    log.close()
    with pytest.raises(LogError, match="is closed"):
        log.reader(CONTROL)
