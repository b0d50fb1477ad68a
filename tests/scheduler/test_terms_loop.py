"""Terms fence code: other code stands by until its own term is open, and an old one changes nothing from there on."""

import logging
from pathlib import Path

import msgspec
import pytest

from gangline.events import codec
from gangline.events.decisions import RoundDecided, TermOpened
from gangline.events.log import DECISIONS, Entry
from gangline.events.terms import Terms
from gangline.events.types import Event
from gangline.scheduler import migrate as migrating
from gangline.scheduler.canonical import STATE_FORMAT, digest, to_bytes
from gangline.scheduler.errors import Halted
from gangline.scheduler.loop import Loop
from gangline.scheduler.migrate import Plain, migrate
from gangline.scheduler.snapshot_store import Snapshot
from tests.scheduler.loop_world import OTHER_CODE, HookedLog, World
from tests.scheduler.replays import folded, replay, valid_rounds


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def steps(world: World, *loops: Loop, count: int = 100) -> None:
    for _ in range(count):
        for loop in loops:
            loop.step(0.0)
        world.clock.advance(0.1)


def opened(world: World) -> list[TermOpened]:
    events = [codec.decode(record.value) for record in world.decisions()]
    return [event for event in events if isinstance(event, TermOpened)]


def test_no_one_decides_before_a_term_is_open(world: World) -> None:
    loop = world.loop(open_term=False)
    world.put(world.inputs.policy())
    steps(world, loop)
    assert len(world.control()) == 2
    assert len(world.decisions()) == 1


def test_other_code_stands_by_and_says_so_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    loop = world.starts()
    other = world.loop(OTHER_CODE, open_term=False)
    for _ in range(5):
        world.put(world.inputs.submit())
        world.settle(loop, other)
    steps(world, other)  # even when the ticker is gone
    assert not other.active
    assert len(opened(world)) == 1
    assert [record.levelno for record in caplog.records if "standing by" in record.message] == [logging.WARNING]


def test_a_term_opens_only_from_a_boundary_at_the_end_of_what_is_decided(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    loop = world.starts()
    loop.follower.save_snapshot()
    world.put(world.inputs.submit())
    world.settle(loop)  # so that the snapshot is no boundary
    other = world.loop(OTHER_CODE)
    steps(world, loop, other)
    assert len(opened(world)) == 1
    assert "--boundary" in caplog.text
    loop.stop()
    world.put(world.inputs.submit())
    world.settle(other)
    assert other.active
    first, second = opened(world)
    assert (second.term, second.previous, second.code_digest) == (2, first.term, OTHER_CODE)
    assert second.control_index == loop.follower.terms.decided
    assert second.boundary_sha256 == digest(to_bytes(loop.follower.state))
    replay(world.log)
    assert folded(world.log, world.folder, OTHER_CODE) == to_bytes(other.follower.state)


def test_the_new_term_takes_over_from_a_live_ticker_of_the_old_one(world: World) -> None:
    old = world.starts()
    old.follower.save_snapshot()
    new = world.loop(OTHER_CODE)
    world.put(world.inputs.submit())
    steps(world, new, old)
    assert new.active
    assert not old.active
    world.put(world.inputs.submit())
    world.settle(new, old)
    replay(world.log)


def test_an_old_loop_that_wakes_within_a_round_writes_a_void_one_and_stands_by(world: World) -> None:
    new: list[Loop] = []

    def sleep_through_a_term(event: Event) -> None:
        if isinstance(event, RoundDecided) and not new and len(world.control()) > 6:
            new.append(world.loop(OTHER_CODE))
            world.run_until(lambda: new[0].active, new[0])
            world.settle(new[0])

    old = world.loop(log=HookedLog(world.log, sleep_through_a_term))
    world.put(world.inputs.policy(), world.inputs.node())
    world.settle(old)
    old.follower.save_snapshot()
    world.put(*[world.inputs.submit() for _ in range(3)])
    world.run_until(lambda: bool(new), old)
    assert valid_rounds(world.log)[1] == 1
    before = replay(world.log).decisions
    steps(world, old)
    assert not old.active
    assert replay(world.log).decisions == before
    world.put(world.inputs.submit())
    world.settle(new[0], old)
    replay(world.log)


def test_of_two_openers_one_opens_and_the_other_stands_by_it(world: World) -> None:
    def be_overtaken(event: Event) -> None:
        if isinstance(event, TermOpened) and event.term == 2 and len(opened(world)) == 1:
            world.run_until(lambda: first.follower.terms.term == 2, first)

    old = world.starts()
    old.stop()
    first = world.loop(OTHER_CODE)
    second = world.loop("c" * 64, log=HookedLog(world.log, be_overtaken))
    steps(world, second, count=1)
    assert len(opened(world)) == 2 + 1  # the second one's is void
    assert second.follower.terms.term == 2
    assert second.follower.term_code == OTHER_CODE
    world.put(world.inputs.submit())
    world.settle(first, second)
    assert len(opened(world)) == 3
    replay(world.log)


def test_two_loops_of_the_same_new_code_open_one_term(world: World) -> None:
    world.starts().stop()
    loops = [world.loop(OTHER_CODE) for _ in range(2)]
    world.put(world.inputs.submit())
    world.settle(*loops)
    world.settle(*reversed(loops))
    assert {loop.follower.terms.term for loop in loops} == {2}
    assert to_bytes(loops[0].follower.state) == to_bytes(loops[1].follower.state)


def test_a_round_just_before_a_term_makes_the_term_void_and_its_writer_tries_anew(world: World) -> None:
    def be_overtaken(event: Event) -> None:
        if isinstance(event, TermOpened) and len(opened(world)) == 1:
            world.put(world.inputs.submit())
            world.settle(old)

    old = world.starts()
    old.follower.save_snapshot()
    new = world.loop(OTHER_CODE, log=HookedLog(world.log, be_overtaken))
    steps(world, new, count=1)
    assert new.follower.terms == Terms(term=1, decided=old.follower.terms.decided)
    steps(world, new, old)
    assert len(opened(world)) == 2  # nothing more without a boundary
    old.stop()
    steps(world, new)
    assert new.follower.terms.term == 2
    assert new.active
    replay(world.log)


def test_a_loop_halts_if_the_snapshot_that_its_term_starts_from_is_gone(world: World) -> None:
    world.starts().stop()
    new = world.loop(OTHER_CODE)
    steps(world, new)
    new.close()
    for path in world.folder.rglob("*.snap"):
        path.unlink()
    with pytest.raises(Halted, match="not among those kept"):
        world.loop(OTHER_CODE)


def test_a_loop_halts_if_it_makes_another_state_of_the_boundary(world: World) -> None:
    old = world.starts()
    old.stop()
    boundary = world.store.newest()
    assert boundary is not None
    meta = codec.decode(world.decisions()[-1].value).meta  # type: ignore[union-attr] # a round
    terms = old.follower.terms
    forged = TermOpened(
        meta=meta,
        term=2,
        previous=1,
        control_index=terms.decided,
        code_digest=OTHER_CODE,
        wheel=None,
        boundary_sha256=boundary.header.state_sha256,
        state_sha256="0" * 64,
    )
    world.log.append(DECISIONS, [Entry(b"", codec.encode(forged))])
    with pytest.raises(Halted, match="not the code that opened the term"):
        world.loop(OTHER_CODE)


def older(state: bytes) -> bytes:
    """Return a state as an invented earlier format had it: one field fewer, a table by another name."""
    _, scalars, tables = msgspec.msgpack.decode(state)
    del scalars["placement_due"]
    tables["waiting"] = tables.pop("pending")
    return msgspec.msgpack.encode([STATE_FORMAT - 1, scalars, tables])


def step_of(plain: Plain) -> Plain:
    scalars = plain.scalars | {"placement_due": False}
    tables = {("pending" if name == "waiting" else name): rows for name, rows in plain.tables.items()}
    return Plain(scalars, tables)


def test_a_state_of_an_earlier_format_is_migrated_step_by_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = world.starts()
    world.put(world.inputs.submit(), world.inputs.submit(gpus=4), world.inputs.submit(gpus=4))
    world.settle(loop)
    now = to_bytes(loop.follower.state)
    monkeypatch.setattr(migrating, "STEPS", {STATE_FORMAT - 1: step_of})
    assert migrate(older(now)) == now
    assert migrate(now) == now


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (msgspec.msgpack.encode([0, {}, {}]), "has no step from 0"),
        (msgspec.msgpack.encode([STATE_FORMAT + 1, {}, {}]), f"has format {STATE_FORMAT + 1}"),
        (b"rubbish", "are not a state"),
    ],
)
def test_a_state_that_this_code_cannot_bring_to_its_own_form_halts(state: bytes, message: str) -> None:
    with pytest.raises(Halted, match=message):
        migrate(state)


def test_a_term_of_code_with_a_new_format_starts_from_the_migrated_state(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.starts()
    world.put(world.inputs.submit(), world.inputs.submit(gpus=4))
    world.settle(old)
    old.stop()
    boundary = world.store.newest()
    assert boundary is not None
    before = older(boundary.state)  # as if the old code had had that format
    header = msgspec.structs.replace(boundary.header, state_sha256=digest(before))
    for path in world.folder.rglob("*"):
        if path.is_file():
            path.unlink()
    live = old.follower.bindings()
    world.store.save(Snapshot(header=header, state=before), live)
    new = world.loop(OTHER_CODE)
    monkeypatch.setattr(migrating, "STEPS", {})
    with pytest.raises(Halted, match="has no step"):
        steps(world, new)
    monkeypatch.setattr(migrating, "STEPS", {STATE_FORMAT - 1: step_of})
    new = world.loop(OTHER_CODE)
    world.put(world.inputs.submit())
    world.settle(new)
    term = opened(world)[-1]
    assert term.boundary_sha256 == digest(before)
    assert term.state_sha256 == boundary.header.state_sha256
    replay(world.log)
    assert folded(world.log, world.folder, OTHER_CODE) == to_bytes(new.follower.state)
