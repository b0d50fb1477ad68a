"""Loops, several at once: one history, whoever writes it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gangline.events import codec
from gangline.events.control import ClockTicked, TickerTookOver
from gangline.events.decisions import GangBound, InputQuarantined, JobEnded, RoundDecided
from gangline.events.history import HistoryReader
from gangline.events.log import MAX_RECORD_BYTES, Log
from gangline.events.open_log import open_log
from gangline.events.types import Event
from gangline.scheduler.canonical import to_bytes
from gangline.scheduler.loop import Loop
from gangline.scheduler.pace_loop import MIN_TICK_INTERVAL_S, TAKEOVER_S
from tests.scheduler.loop_world import CODE, OTHER_CODE, Agents, HookedLog, Inputs, Killed, World
from tests.scheduler.replays import folded, replay

ENDED_WITHIN_S = 100
"""A bound, not an expectation: an idle machine needs 1 to 2 s, a busy one has taken more than 20."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ticks(world: World) -> int:
    return sum(record.value.startswith(codec.header_of(ClockTicked)) for record in world.control())


def test_a_loop_decides_what_is_submitted(world: World) -> None:
    loop = world.starts()
    world.put(world.inputs.submit(gpus=2), world.inputs.submit(gpus=2), world.inputs.submit(gpus=2))
    world.settle(loop)
    replayed = replay(world.log)
    assert sum(isinstance(one, GangBound) for one in replayed.decisions) == 2
    assert to_bytes(loop.follower.state) == replayed.states[loop.follower.terms.decided]


def test_a_standby_has_the_same_state_and_writes_nothing(world: World) -> None:
    loop = world.starts()
    standby = world.loop()
    for _ in range(5):
        world.put(world.inputs.submit(), world.inputs.submit(gpus=99))
        world.settle(standby, loop)
    assert not standby.active
    assert world.takeovers() == [loop.ticker]
    assert to_bytes(standby.follower.state) == to_bytes(loop.follower.state)


def test_a_standby_takes_over_three_seconds_after_a_tick_was_due(world: World) -> None:
    world.starts()  # and dies
    standby = world.loop()
    standby.step(0.0)
    world.clock.advance(4)  # nothing is due yet, so nobody is missed
    standby.step(0.0)
    world.put(world.inputs.submit())
    standby.step(0.0)
    world.clock.advance(TAKEOVER_S - 0.01)
    standby.step(0.0)
    assert len(world.takeovers()) == 1
    world.clock.advance(0.02)
    standby.step(0.0)
    assert world.takeovers()[1:] == [standby.ticker]
    world.settle(standby)
    assert standby.active
    replay(world.log)


def test_a_standby_misses_a_ticker_when_time_makes_a_tick_due(world: World) -> None:
    world.starts(answers_kept_us=60_000_000, ahead_limit_us=30_000_000)
    standby = world.loop()
    world.run_until(lambda: standby.active, standby)
    assert world.takeovers()[-1] == standby.ticker


def test_facts_share_a_round_and_a_command_has_one_at_once(world: World) -> None:
    loop = world.starts()
    ticked = ticks(world)
    world.put(world.inputs.node(7))
    world.settle(loop, step_s=0.0)
    assert ticks(world) == ticked + 1
    world.put(world.inputs.node(8))
    for _ in range(5):
        loop.step(0.0)
    assert ticks(world) == ticked + 1
    world.put(world.inputs.submit())
    world.settle(loop, step_s=0.0)
    assert ticks(world) == ticked + 2


def test_after_a_clean_stop_the_next_one_takes_over_at_once(world: World) -> None:
    loop = world.starts()
    standby = world.loop()
    world.settle(standby, loop)
    loop.stop()
    world.clock.advance(MIN_TICK_INTERVAL_S * 2)
    standby.step(0.0)
    assert world.takeovers() == [loop.ticker, "", standby.ticker]
    world.settle(standby)
    assert standby.active


def test_a_takeover_that_cannot_be_read_yet_is_not_repeated(world: World) -> None:
    loop = world.starts()
    loop.stop()
    standby = world.loop()
    world.put(*[world.inputs.submit(gpus=99) for _ in range(5_000)])  # read in batches
    world.settle(standby)
    assert world.takeovers()[2:] == [standby.ticker]


def test_a_ticker_that_slept_through_a_takeover_changes_nothing(world: World) -> None:
    asleep = world.starts()
    standby = world.loop()
    world.put(world.inputs.submit())
    world.run_until(lambda: standby.active, standby)
    world.settle(standby)
    before = replay(world.log)
    for _ in range(5):
        asleep.step(0.0)
        world.clock.advance(1)
    assert not asleep.active
    assert replay(world.log).decisions == before.decisions
    world.put(world.inputs.submit())
    world.settle(standby, asleep)
    assert to_bytes(asleep.follower.state) == to_bytes(standby.follower.state)
    assert len(world.takeovers()) == 2


def test_a_ticker_that_slept_between_its_tick_and_the_round_can_tick_again(world: World) -> None:
    asleep = world.starts()
    standby = world.loop()
    world.put(world.inputs.submit())
    ticked = ticks(world)
    world.run_until(lambda: ticks(world) > ticked, asleep)
    world.run_until(lambda: standby.active, standby)
    world.settle(standby)
    asleep.step(0.0)  # reads the round of its own tick at once
    assert not asleep.active
    world.put(world.inputs.submit())  # and the other one is gone
    world.run_until(lambda: asleep.active, asleep)
    world.settle(asleep)
    replay(world.log)


def test_a_tick_that_another_codes_term_covers_does_not_keep_a_loop_from_ticking_again(world: World) -> None:
    old = world.starts()
    old.follower.save_snapshot()
    world.put(world.inputs.submit())
    ticked = ticks(world)
    world.run_until(lambda: ticks(world) > ticked, old)
    new = world.loop(OTHER_CODE)
    world.run_until(lambda: new.active, new)
    world.settle(new)
    old.step(0.0)
    assert old.follower.foreign
    new.stop()
    world.run_until(lambda: old.active, old)
    world.put(world.inputs.submit())
    world.settle(old)


def test_a_ticker_that_wakes_within_its_own_round_writes_it_a_second_time_and_in_vain(world: World) -> None:
    slept: list[Event] = []

    def sleep_through_a_takeover(event: Event) -> None:
        if isinstance(event, RoundDecided) and armed.is_set() and not slept:
            slept.append(event)
            world.run_until(lambda: standby.active, standby)
            world.put(world.inputs.submit())
            world.settle(standby)

    armed = threading.Event()
    asleep = world.loop(log=HookedLog(world.log, sleep_through_a_takeover))
    world.put(world.inputs.policy(), world.inputs.node())
    world.settle(asleep)
    standby = world.loop()
    world.put(world.inputs.submit())
    armed.set()
    world.run_until(lambda: bool(slept), asleep)
    assert replay(world.log).void == 1
    world.settle(standby, asleep)
    assert standby.active
    assert to_bytes(asleep.follower.state) == to_bytes(standby.follower.state)


def test_a_tick_without_its_round_is_decided_by_the_next_ticker_with_the_same_bytes(world: World) -> None:
    lost: list[bytes] = []

    def die_before_a_binding(event: Event) -> None:
        if isinstance(event, RoundDecided) and any(value[:10] == header for value in event.decisions):
            lost.append(codec.encode(event))
            raise Killed

    header = codec.header_of(GangBound)
    loop = world.loop(log=HookedLog(world.log, die_before_a_binding))
    world.put(world.inputs.policy(), world.inputs.node())
    world.settle(loop)
    world.put(world.inputs.submit(), world.inputs.submit(gpus=99))
    with pytest.raises(Killed):
        world.settle(loop)
    standby = world.loop()
    world.settle(standby)
    assert lost[0] in [record.value for record in world.decisions()]
    replay(world.log)


@pytest.fixture(params=["memory", "sqlite", "kafka"])
def any_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'log'}"}.get(request.param)
    if url is None:
        url = f"kafka://{request.getfixturevalue('kafka_bootstrap')}/{request.getfixturevalue('kafka_prefix')}"
    log = open_log(url, create=True)
    yield log
    log.close()


@pytest.mark.slow
@pytest.mark.timeout(2 * ENDED_WITHIN_S)
def test_two_loops_at_once_under_load_produce_one_history(any_log: Log, tmp_path: Path) -> None:
    world = World(tmp_path, any_log)
    world.put(world.inputs.policy(), *(world.inputs.node(number) for number in range(4)))
    stopping = threading.Event()
    failures: list[BaseException] = []
    commands: list[bytes] = []

    def loops() -> None:
        loop = Loop(world.log, world.store, code_digest=CODE, open_term=True, snapshot_records=100)
        try:
            pretended = 0
            while not stopping.is_set():
                loop.step(0.05)
                if loop.follower.terms.decided > pretended + 50:  # now and then, so that both believe to be the ticker
                    pretended = loop.follower.terms.decided
                    loop._append(TickerTookOver(meta=loop._meta(), ticker=loop.ticker))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)
        finally:
            loop.close()

    def submits(name: str) -> None:
        inputs = Inputs(world.log_id, name)
        for number in range(60):
            command = inputs.submit(gpus=1 + number % 3, name="fails" if number % 5 == 0 else "train")
            world.put(command, *([command] if number % 10 == 0 else []), *([b"rubbish"] if number % 20 == 0 else []))
            commands.append(command.meta.command_id or b"")

    threads = [threading.Thread(target=loops) for _ in range(2)]
    threads += [threading.Thread(target=submits, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    agents = Agents(world.log, Inputs(world.log_id, "agents"))
    try:
        deadline_s = time.monotonic() + ENDED_WITHIN_S
        while time.monotonic() < deadline_s:
            facts = agents.report()
            if facts:
                world.put(*facts)
            ended = sum(isinstance(one, JobEnded) for one in agents.decisions)
            if ended == 120 or failures:
                break
            threading.Event().wait(0.01)
    finally:
        stopping.set()
        for thread in threads:
            thread.join(30)
        agents.close()
    assert not failures
    replayed = replay(world.log)
    answers = replayed.answers()
    assert {command: answers[command] for command in commands} == dict.fromkeys(commands, 1)
    assert sum(isinstance(one, JobEnded) for one in replayed.decisions) == 120
    assert folded(world.log, tmp_path / "none") == replayed.states[max(replayed.states)]
    consumer = HistoryReader(world.log)
    assert [one for segment in consumer.read_to_end() for one in segment.decisions] == replayed.decisions
    consumer.close()
    assert folded(world.log, world.folder) == replayed.states[max(replayed.states)]
    assert list(world.folder.rglob("*.snap"))


# --- time ---


def test_nothing_is_written_while_nothing_happens(world: World) -> None:
    loop = world.starts(answers_kept_us=2, ahead_limit_us=1)  # so that nothing waits for time either
    world.run_until(lambda: loop.follower.state.answers_next == 1, loop)
    for _ in range(300):  # the answer is forgotten
        loop.step(0.0)
        world.clock.advance(0.05)
    length = len(world.control()), len(world.decisions())
    for _ in range(100):
        loop.step(0.0)
        world.clock.advance(60)
    assert (len(world.control()), len(world.decisions())) == length


def test_while_something_waits_for_time_a_tick_comes_every_five_seconds_and_no_round(world: World) -> None:
    loop = world.starts()
    before, rounds = ticks(world), len(world.decisions())
    for _ in range(1_000):
        loop.step(0.0)
        world.clock.advance(0.1)
    assert 100 // 5 <= ticks(world) - before <= 100 // 4
    assert len(world.decisions()) == rounds


@pytest.mark.parametrize("years", [-30, 30])
def test_a_wrong_wall_clock_moves_nothing(years: int, world: World) -> None:
    loop = world.starts()
    world.put(world.inputs.submit(max_runtime_us=600_000_000))
    world.settle(loop)
    state = loop.follower.state
    assert len(state.deadlines) == 1
    for _ in range(10):  # there and back again
        world.clock.wall_offset_us += years * 365 * 86_400 * 1_000_000
        world.put(world.inputs.submit(gpus=99))
        world.settle(loop)
        world.clock.wall_offset_us = 0
        world.put(world.inputs.submit(gpus=99))
        world.settle(loop)
    after = loop.follower.state
    assert 0 <= after.now_us - state.now_us <= 20 * 5_000_000
    assert len(after.deadlines) == 1
    assert after.answers_first == 0
    replay(world.log)


def test_max_runtime_ends_by_ticks_and_not_before(world: World) -> None:
    loop = world.starts()
    world.put(world.inputs.submit(max_runtime_us=60_000_000))
    world.settle(loop)
    started_s = world.clock.now_s
    world.run_until(lambda: not loop.follower.state.deadlines, loop)
    assert 60 <= world.clock.now_s - started_s < 61


def test_an_outage_advances_core_time_by_five_seconds_only(world: World) -> None:
    loop = world.starts()
    before = loop.follower.state.now_us
    world.clock.advance(30 * 86_400)
    again = world.loop()
    world.put(world.inputs.submit())
    world.settle(again)
    assert again.follower.state.now_us - before <= 2 * 5_000_000


# --- bursts, rubbish ---


@pytest.mark.slow
def test_a_burst_of_ten_thousand_commands_is_answered_in_records_below_the_limit(world: World) -> None:
    loop = world.starts()
    commands = [world.inputs.submit(name="n" * 60, gpus=1 + 98 * (number % 2)) for number in range(10_000)]
    for start in range(0, len(commands), 1_000):
        world.put(*commands[start : start + 1_000])
    world.settle(loop)
    world.run_until(lambda: not loop.follower.state.more, loop)
    assert max(len(record.value) for record in world.decisions()) < MAX_RECORD_BYTES
    replayed = replay(world.log, keep_states=False)
    assert len(replayed.answers()) == 10_001
    assert set(replayed.answers().values()) == {1}
    assert not loop.follower.undecided


def test_rubbish_is_quarantined_by_the_next_round_and_skipped_by_replays(world: World) -> None:
    loop = world.starts()
    last = world.put(
        b"",
        b"rubbish",
        codec.header_of(ClockTicked) + b"\xff" * 30,
        codec.encode(InputQuarantined(control_index=1, reason="a decision has no place here")),
        _node_with_an_index_twice(world),
    )
    world.put(world.inputs.submit())
    world.settle(loop)
    named = [one.control_index for one in replay(world.log).decisions if isinstance(one, InputQuarantined)]
    assert named == list(range(last - 4, last + 1))
    assert folded(world.log, world.folder) == to_bytes(loop.follower.state)


def _node_with_an_index_twice(world: World) -> bytes:
    node = world.inputs.node(9)
    return codec.encode(msgspec.structs.replace(node, gpus=(node.gpus[0], node.gpus[0])))


@pytest.mark.slow
def test_a_flood_of_rubbish_is_survived(world: World) -> None:
    loop = world.starts()
    world.put(*[b"rubbish %d" % number for number in range(1_500)])
    world.put(world.inputs.submit())
    world.settle(loop)
    replayed = replay(world.log)
    assert sum(isinstance(one, InputQuarantined) for one in replayed.decisions) == 1_500
    assert sum(isinstance(one, GangBound) for one in replayed.decisions) == 1
    assert folded(world.log, world.folder / "none") == to_bytes(loop.follower.state)
