"""What halts a loop, and what a round on the log says is skipped: anything else would be a silent divergence."""

from pathlib import Path

import msgspec
import pytest

from gangline.events import codec, ids
from gangline.events.control import ClockTicked, LogCreated
from gangline.events.decisions import InputQuarantined, JobAdmitted, RoundDecided
from gangline.events.log import DECISIONS, Entry, LogDamaged, LogTooNew
from gangline.events.types import Decision, Event, Meta
from gangline.scheduler.canonical import from_bytes
from gangline.scheduler.errors import Halted
from tests.scheduler.loop_world import HookedLog, World
from tests.scheduler.replays import folded, replay

NEWER = b"\xc3\x01" + bytes(8)
"""A value of a contract that nobody knows."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def append_round(world: World, *decisions: Decision | bytes, ticker: str) -> None:
    """Append a tick of this ticker, and a round for it that says just this."""
    tick = ClockTicked(meta=world.inputs.meta(), ticker=ticker)
    index = world.put(tick)
    meta = Meta(event_id=ids.derived(world.log_id, index, "round"), actor="scheduler", at_us=tick.meta.at_us)
    decided = RoundDecided(
        meta=meta,
        tick_index=index,
        tick_event_id=tick.meta.event_id,
        term=1,
        more=False,
        decisions=tuple(one if isinstance(one, bytes) else codec.encode(one) for one in decisions),
    )
    world.log.append(DECISIONS, [Entry(b"", codec.encode(decided))])


def test_a_named_record_is_skipped_even_if_it_decodes_now(world: World) -> None:
    loop = world.starts()
    index = world.put(world.inputs.node(5))
    append_round(
        world, InputQuarantined(control_index=index, reason="older code could not read it"), ticker=loop.ticker
    )
    state = from_bytes(folded(world.log, world.folder))
    assert "node-5" not in state.nodes
    loop.step(0.0)
    assert "node-5" not in loop.follower.state.nodes


@pytest.mark.parametrize("record", [b"rubbish", b""])
def test_an_unreadable_record_that_its_round_does_not_name_halts(record: bytes, world: World) -> None:
    loop = world.starts()
    index = world.put(record)
    append_round(world, ticker=loop.ticker)
    with pytest.raises(Halted, match=f"record {index} of 'control' cannot be applied"):
        folded(world.log, world.folder)
    with pytest.raises(Halted, match=f"record {index} of 'control' cannot be applied"):
        loop.step(0.0)


def test_a_record_of_a_newer_contract_halts_and_nothing_is_written_after_it(world: World) -> None:
    loop = world.starts()
    world.put(world.inputs.submit())
    index = world.put(NEWER)
    world.put(world.inputs.submit())
    length = len(world.decisions())
    with pytest.raises(LogTooNew, match=f"record {index} of 'control'.*newer one"):
        world.settle(loop)
    again = world.loop()
    with pytest.raises(LogTooNew):
        world.settle(again)
    assert len(world.decisions()) == length


def test_a_decision_of_a_newer_contract_halts(world: World) -> None:
    loop = world.starts()
    world.log.append(DECISIONS, [Entry(b"", NEWER)])
    with pytest.raises(LogTooNew, match="of 'decisions'"):
        loop.step(0.0)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (b"rubbish", LogDamaged, "of 'decisions' cannot be decoded"),
        (codec.encode(InputQuarantined(control_index=1, reason="")), Halted, "is a InputQuarantined"),
    ],
)
def test_a_stray_record_on_decisions_halts(value: bytes, error: type[Exception], message: str, world: World) -> None:
    loop = world.starts()
    world.log.append(DECISIONS, [Entry(b"", value)])
    with pytest.raises(error, match=message):
        loop.step(0.0)


@pytest.mark.parametrize(("value", "error"), [(b"rubbish", LogDamaged), (NEWER, LogTooNew)])
def test_bytes_within_a_round_that_are_no_decision_halt(value: bytes, error: type[Exception], world: World) -> None:
    loop = world.starts()
    append_round(world, value, ticker=loop.ticker)
    with pytest.raises(error, match="the round of tick"):
        loop.step(0.0)


def test_a_later_creation_of_the_log_is_ignored(world: World) -> None:
    loop = world.starts()
    later = codec.encode(LogCreated(meta=world.inputs.meta(), log_id="another", format=1))
    world.put(later)
    world.log.append(DECISIONS, [Entry(b"", later)])
    world.put(world.inputs.submit())
    world.settle(loop)
    assert loop.follower.state.log_id == world.log_id
    replay(world.log)


def test_a_round_that_answers_what_was_not_asked_halts(world: World) -> None:
    loop = world.starts()
    answer = JobAdmitted(command_id=bytes(16), control_index=1, job_id="job-x")
    append_round(world, answer, ticker=loop.ticker)
    with pytest.raises(Halted, match="does not wait there"):
        loop.step(0.0)


def test_a_loop_halts_if_another_one_of_its_code_decided_differently(world: World) -> None:
    def be_contradicted(event: Event) -> None:
        if isinstance(event, RoundDecided) and event.decisions:
            other = msgspec.structs.replace(event, decisions=())
            world.log.append(DECISIONS, [Entry(b"", codec.encode(other))])

    loop = world.loop(log=HookedLog(world.log, be_contradicted))
    world.put(world.inputs.policy())
    with pytest.raises(Halted, match="not deterministic"):
        world.settle(loop)
