"""The codec: every value comes back as it was, and all other bytes are refused, by one of two names."""

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.events.codec import HEADER_BYTES, Undecodable, Unencodable, decode, encode, header_of, type_of
from gangline.events.control import ClockTicked, Heartbeat, RanksExited, SubmitJob
from gangline.events.decisions import AttemptStopOrdered
from gangline.events.log import LogTooNew
from gangline.events.types import Decision, Event, JobSpec, Meta
from gangline.schemas.contracts import packaged
from tests.events import golden
from tests.events.samples import values

LIBRARY = packaged()
NEWEST = {contract.name: contract for contract in LIBRARY.contracts}
GOLDEN = [bytes.fromhex(value) for kinds in golden.load().values() for value in kinds.values()]
META = Meta(event_id=b"e" * 16, actor="test", at_us=1)


def fields_of(name: str) -> st.SearchStrategy[Any]:
    import json

    return values(json.loads(LIBRARY.text(name, NEWEST[name].version)))


def events() -> st.SearchStrategy[Event | Decision]:
    return st.sampled_from(sorted(type_of)).flatmap(
        lambda name: fields_of(name).map(lambda fields: msgspec.convert(fields, type_of[name]))
    )


def read(value: bytes) -> Event | Decision | None:
    """Return what the bytes say, or None if they are refused as they should be."""
    try:
        return decode(value)
    except (Undecodable, LogTooNew):
        return None


def held(value: bytes) -> None:
    """Check that what can be read can be written, and read again: the core keeps commands as bytes."""
    event = read(value)
    if event is not None:
        assert decode(encode(event)) == event


@pytest.mark.parametrize("value", GOLDEN)
def test_frozen_bytes_are_read_and_written_again(value: bytes) -> None:
    event = decode(value)
    if value.startswith(header_of(type(event))):
        assert encode(event) == value


@given(events())
def test_every_event_comes_back_as_it_was(event: Event | Decision) -> None:
    value = encode(event)
    assert decode(value) == event
    assert encode(decode(value)) == value


def test_bytes_do_not_depend_on_the_order_in_which_a_map_was_filled() -> None:
    one, other = ({key: key for key in keys} for keys in ("abc", "cba"))
    specs = [JobSpec(name="n", queue="q", command=("c",), gpus=1, env=env) for env in (one, other)]
    first, second = (encode(SubmitJob(meta=META, spec=spec)) for spec in specs)
    assert first == second


@pytest.mark.parametrize("value", GOLDEN)
def test_bytes_that_are_cut_anywhere_are_undecodable(value: bytes) -> None:
    for length in range(len(value)):
        with pytest.raises(Undecodable):
            decode(value[:length])


@pytest.mark.parametrize("value", GOLDEN)
def test_bytes_too_many_are_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable, match="1 bytes too many"):
        decode(value + b"\0")


@pytest.mark.parametrize("value", [b"", b"\xc3", b"\xc3\x01", b"x" * 20, b"\xc3\x02" + b"x" * 20, b"\0" * 10])
def test_what_is_not_in_this_encoding_is_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable, match="C3 01"):
        decode(value)


def test_an_unknown_contract_is_too_new_and_named() -> None:
    with pytest.raises(LogTooNew, match=r"0011223344556677.*install that version"):
        decode(b"\xc3\x01" + bytes.fromhex("0011223344556677") + b"x")


@given(st.sampled_from(GOLDEN), st.binary(max_size=80))
def test_any_body_is_read_or_refused(value: bytes, body: bytes) -> None:
    held(value[:HEADER_BYTES] + body)


@given(st.sampled_from(GOLDEN), st.data())
def test_changed_bytes_are_read_or_refused(value: bytes, data: st.DataObject) -> None:
    changed = bytearray(value)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=11))
        if not changed:
            break
    held(bytes(changed))


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("number", [2**20, 2**31, 2**40, 2**62, -1, -(2**40), -(2**62)])
def test_a_length_that_is_not_there_takes_no_memory(number: int) -> None:
    longest = max(GOLDEN, key=len)
    tracemalloc.start()
    try:
        for value in GOLDEN:
            for place in range(HEADER_BYTES, len(value)):
                held(value[:place] + varint(number) + value[place + 1 :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000 + 100 * len(longest)


@pytest.mark.parametrize("length", [11, 20, 100])
def test_a_number_of_too_many_bytes_is_read_or_refused(length: int) -> None:
    for value in GOLDEN:
        for place in range(HEADER_BYTES, len(value)):
            held(value[:place] + b"\xff" * length + b"\x01" + value[place + 1 :])


@pytest.mark.parametrize(
    "event",
    [
        ClockTicked(meta=META, ticker=1),  # type: ignore[arg-type]
        ClockTicked(meta=Meta(event_id=b"short", actor="test", at_us=1), ticker="t"),
        Heartbeat(meta=META, node_id="n", boot_id="b", agent_id="a", sequence=2**63),
        Heartbeat(meta=META, node_id="n", boot_id="b", agent_id="a", sequence="1"),  # type: ignore[arg-type]
        RanksExited(meta=META, job_id="j", attempt=1, node_id="n", exits=None, gone=True),  # type: ignore[arg-type]
        AttemptStopOrdered(job_id="j", attempt=1, reason="bored", grace_us=1),  # type: ignore[arg-type]
        ClockTicked(meta=META, ticker="\ud800"),
    ],
)
def test_what_does_not_fit_its_contract_is_not_written(event: Event | Decision) -> None:
    with pytest.raises(Unencodable, match=type(event).__name__):
        encode(event)


def test_what_has_no_contract_is_not_written() -> None:
    class Unheard(Event, frozen=True, kw_only=True):
        pass

    with pytest.raises(Unencodable, match="Unheard has no contract"):
        encode(Unheard(meta=META))
