"""The merge of `control` and `decisions`: what counts, in which order, and what stops it."""

import contextlib
import itertools

import pytest

from gangline.events import codec, identity
from gangline.events.control import LogCreated, NodeRegistered
from gangline.events.decisions import InputQuarantined, JobAdmitted, PolicyActivated, RoundDecided
from gangline.events.history import HistoryReader, Segment
from gangline.events.log import (
    CONTROL,
    DECISIONS,
    START,
    Entry,
    LogCut,
    LogDamaged,
    LogReplaced,
    LogTooNew,
    LogUnavailable,
    Position,
    Record,
)
from gangline.events.memory import MemoryLog, MemoryReader
from gangline.events.terms import Terms
from gangline.events.types import Meta
from tests.histories import Script

UNKNOWN = b"\xc3\x01" + b"\0" * 8


@pytest.fixture
def script() -> Script:
    return Script(MemoryLog())


def segments(script: Script) -> list[Segment]:
    return list(HistoryReader(script.log).read_to_end())


def test_a_round_follows_directly_on_its_tick(script: Script) -> None:
    script.starts()
    node = script.node()
    tick = script.decides()
    script.node("node-1")
    first, second = segments(script)
    assert isinstance(first.decisions[0], PolicyActivated)
    assert [one.term for one in first.opened] == [1]
    assert [one.record.index for one in second.inputs] == [node, tick]
    assert isinstance(second.inputs[0].event, NodeRegistered)
    assert second.control == Position(tick + 1, tick + 1)
    assert second.opened == ()


def test_what_no_round_covers_is_not_read(script: Script) -> None:
    script.starts()
    script.node()
    script.tick()
    assert len(segments(script)) == 1


def test_ticks_without_a_round_come_with_the_next_one(script: Script) -> None:
    script.starts()
    first = script.index
    script.tick()
    script.tick()
    last = script.decides()
    assert [one.record.index for one in segments(script)[1].inputs] == list(range(first, last + 1))


def test_reading_resumes_at_any_segment(script: Script) -> None:
    script.starts()
    for number in range(5):
        script.node(f"node-{number}")
        script.decides()
        if number == 2:
            script.opens()
    whole = segments(script)
    for number, segment in enumerate(whole):
        rest = HistoryReader(script.log, segment.control, segment.after, segment.terms)
        assert list(rest.read_to_end()) == whole[number + 1 :]


def test_reading_in_small_batches_is_reading(script: Script) -> None:
    script.starts()
    for number in range(7):
        script.node(f"node-{number}")
        script.decides()
    reader = HistoryReader(script.log)
    read = []
    while batch := reader.read(2):
        assert len(batch) <= 2
        read += batch
    assert read == segments(script)


def test_a_second_round_of_a_tick_is_void(script: Script) -> None:
    script.starts()
    tick = script.tick()
    index = script.index - 1
    script.writes(tick, index)
    script.writes(tick, index, [PolicyActivated(command_id=b"x" * 16, control_index=1)])
    last = segments(script)[-1]
    assert len(segments(script)) == 2
    assert last.decisions == ()


def test_rounds_of_a_lower_term_are_void(script: Script) -> None:
    script.starts()
    script.opens()
    stale = script.tick()
    stale_index = script.index - 1
    script.writes(stale, stale_index, [PolicyActivated(command_id=b"x" * 16, control_index=1)], term=1)
    script.writes(stale, stale_index, term=2)
    assert [segment.round.term for segment in segments(script)] == [1, 2]


def test_a_term_below_what_is_decided_is_void(script: Script) -> None:
    script.starts()
    decided = script.decides()
    script.opens(control_index=decided - 1)
    script.term = 1
    script.decides()
    last = segments(script)[-1]
    assert (last.opened, last.terms.term) == ((), 1)


def test_ticks_up_to_a_terms_control_index_were_decided_empty(script: Script) -> None:
    script.starts()
    node = script.node()
    tick = script.tick()
    empty = script.index - 1
    script.opens(control_index=empty)
    script.writes(tick, empty, [PolicyActivated(command_id=b"x" * 16, control_index=1)])
    last = script.decides()
    segment = segments(script)[-1]
    assert len(segments(script)) == 2
    assert [one.record.index for one in segment.inputs] == [node, empty, last]


def test_what_follows_the_last_round_is_told_apart(script: Script) -> None:
    script.starts()
    opened = script.opens()
    reader = HistoryReader(script.log)
    (segment,) = reader.read_to_end()
    assert reader.opened == (opened,)
    assert reader.terms == Terms(term=2, decided=opened.control_index)
    assert reader.control_position == segment.control
    assert reader.decisions_position.index == segment.after.index + 1


def test_a_quarantined_record_is_left_out_even_if_it_decodes(script: Script) -> None:
    script.starts()
    bad = script.append_bytes(b"no event")
    good = script.node()
    script.decides(
        InputQuarantined(control_index=bad, reason="not Avro"), InputQuarantined(control_index=good, reason="refused")
    )
    assert [type(one.event).__name__ for one in segments(script)[-1].inputs] == ["ClockTicked"]


def test_bytes_that_no_round_quarantines_stop_the_reader(script: Script) -> None:
    script.starts()
    bad = script.append_bytes(b"no event")
    script.decides()
    reader = HistoryReader(script.log)
    with pytest.raises(LogDamaged, match=rf"record {bad} of 'control' cannot be decoded and no round skips it"):
        list(reader.read_to_end())


def test_a_record_of_a_newer_version_stops_the_reader(script: Script) -> None:
    script.starts()
    index = script.append_bytes(UNKNOWN)
    script.decides()
    with pytest.raises(LogTooNew, match=rf"record {index} of 'control'.*newer"):
        segments(script)


def test_a_decision_of_a_newer_version_stops_the_reader(script: Script) -> None:
    script.starts()
    script.log.append(DECISIONS, [Entry(b"", UNKNOWN)])
    with pytest.raises(LogTooNew, match="record 3 of 'decisions'"):
        segments(script)


@pytest.mark.parametrize(("value", "error"), [(b"rubbish", LogDamaged), (UNKNOWN, LogTooNew)])
def test_bytes_within_a_round_that_are_no_decision_stop_the_reader(
    value: bytes, error: type[Exception], script: Script
) -> None:
    script.starts()
    tick = script.tick()
    decided = RoundDecided(
        meta=script.meta(),
        tick_index=script.index - 1,
        tick_event_id=tick.meta.event_id,
        term=script.term,
        more=False,
        decisions=(value,),
    )
    script.log.append(DECISIONS, [Entry(b"", codec.encode(decided))])
    with pytest.raises(error, match="a decision in record 3 of 'decisions'"):
        segments(script)


def test_a_tick_that_the_round_does_not_know_stops_the_reader(script: Script) -> None:
    script.starts()
    tick = script.tick()
    script.node()
    script.writes(tick, script.index - 1)
    with pytest.raises(LogReplaced, match="was decided on another 'control'"):
        segments(script)


def test_a_round_beyond_the_end_of_control_stops_the_reader(script: Script) -> None:
    script.starts()
    script.writes(script.tick(), script.index + 5)
    with pytest.raises(LogCut, match="'control' ends at"):
        segments(script)


def test_a_position_beyond_the_end_stops_the_reader(script: Script) -> None:
    with pytest.raises(LogCut):
        HistoryReader(script.log, Position(100, 100))


def test_topics_of_different_logs_stop_the_reader() -> None:
    log = MemoryLog()
    for topic, name in ((CONTROL, "a"), (DECISIONS, "b")):
        created = LogCreated(meta=Meta(event_id=b"x" * 16, actor="test", at_us=0), log_id=name, format=1)
        log.append(topic, [Entry(b"", codec.encode(created))])
    with pytest.raises(LogReplaced, match="parts of different logs"):
        HistoryReader(log)


def test_later_identities_are_ignored(script: Script) -> None:
    again = codec.encode(LogCreated(meta=script.meta(), log_id="other", format=1))
    script.append_bytes(again)
    script.log.append(DECISIONS, [Entry(b"", again)])
    script.starts()
    reader = HistoryReader(script.log)
    assert reader.log_id == script.log_id
    assert len(list(reader.read_to_end())) == 1


def test_a_log_without_records_is_absent() -> None:
    with pytest.raises(identity.LogAbsent, match="gangline up"):
        HistoryReader(MemoryLog())


def test_a_log_of_a_newer_format_is_refused() -> None:
    log = MemoryLog()
    created = LogCreated(meta=Meta(event_id=b"x" * 16, actor="test", at_us=0), log_id="a", format=2)
    log.append(CONTROL, [Entry(b"", codec.encode(created))])
    with pytest.raises(LogTooNew, match="format 2"):
        identity.create(log, actor="test")


def test_creating_a_log_twice_keeps_its_identity() -> None:
    log = MemoryLog()
    assert identity.create(log, actor="a") == identity.create(log, actor="b")


def test_a_creation_killed_half_way_is_completed() -> None:
    log, whole = MemoryLog(), MemoryLog()
    created = identity.create(whole, actor="a")
    log.append(CONTROL, [Entry(b"", whole.reader(CONTROL).read()[0].value)])
    assert identity.create(log, actor="b") == created == identity.log_id(log)


def test_an_admission_reaches_the_reader(script: Script) -> None:
    script.starts()
    job = script.admits()
    (decision,) = segments(script)[-1].decisions
    assert isinstance(decision, JobAdmitted)
    assert decision.job_id == job


class Stuttering(MemoryLog):
    """A log whose readers of `control` fail every other time, as a broker that comes and goes."""

    def reader(self, topic: str, position: Position = START, *, partition: int = 0) -> MemoryReader:
        reader = super().reader(topic, position, partition=partition)
        if topic == CONTROL and self.stutters:
            calls = itertools.count()
            read = reader.read

            def sometimes(limit: int = 10_000, *, timeout_s: float = 0.0) -> list[Record]:
                if next(calls) % 2 == 0:
                    raise LogUnavailable("nobody answers")
                return read(min(limit, 1), timeout_s=timeout_s)

            reader.read = sometimes  # type: ignore[method-assign] # the fault
        return reader

    stutters = False


def test_a_log_that_does_not_answer_costs_no_segment() -> None:
    log = Stuttering()
    script = Script(log)
    script.starts()
    for number in range(4):
        script.node(f"node-{number}")
        script.decides()
        script.opens()
    whole = segments(script)
    reader = HistoryReader(log)
    log.stutters = True
    reader._control = log.reader(CONTROL)
    read: list[Segment] = []
    for _ in range(100):
        with contextlib.suppress(LogUnavailable):
            read += reader.read()
    assert read == whole
