"""Snapshot and suffix equal a full replay, and what is wrong with snapshots or with their log is named."""

import hashlib
import logging
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from immutables import Map

from gangline.events import codec, identity
from gangline.events.codec import Undecodable
from gangline.events.control import ClockTicked
from gangline.events.decisions import BindingsSnapshot, GangBound
from gangline.events.log import CONTROL, DECISIONS, Entry, LogCut, LogReplaced, Record
from gangline.events.memory import MemoryLog
from gangline.scheduler.canonical import from_bytes, to_bytes
from gangline.scheduler.decide import decide, round_is_due
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.evolve import evolve, fail
from gangline.scheduler.follow_loop import Follower, event_of
from gangline.scheduler.snapshot_store import KEPT, SnapshotError, SnapshotStore
from gangline.scheduler.state import State
from tests.scheduler.loop_world import CODE, OTHER_CODE, Agents, Inputs, World
from tests.scheduler.replays import folded, replay, valid_rounds

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def busy(world: World, *, rounds: int = 12, snapshot_records: int = 1_000_000) -> State:
    """Let a loop live through all that there is to decide; return its last state."""
    loop = world.loop(snapshot_records=snapshot_records)
    world.put(world.inputs.policy(), *(world.inputs.node(number, gpus=4) for number in range(3)))
    world.settle(loop)
    agents = Agents(world.log, Inputs(world.log_id, "agents"))
    chosen = random.Random(7)
    for number in range(rounds):
        names = [chosen.choice(["fails", "runs", "train"]) for _ in range(3)]
        commands = [world.inputs.submit(name=name, gpus=chosen.choice([1, 2, 5, 99])) for name in names]
        world.put(*commands, commands[0], b"rubbish %d" % number, *agents.report())
        if number % 3 == 2:
            world.put(*(world.inputs.cancel(job_id) for job_id in sorted(loop.follower.state.jobs)[:2]))
        world.settle(loop)
    agents.close()
    loop.close()
    return loop.follower.state


def copy_of(control: list[Record], decisions: list[Record]) -> MemoryLog:
    log = MemoryLog()
    for topic, records in ((CONTROL, control), (DECISIONS, decisions)):
        log.append(topic, [Entry(record.key, record.value) for record in records])
    return log


def snapshots(world: World) -> list[Path]:
    return sorted(world.folder.rglob("*.snap"), key=lambda path: int(path.name.split("-")[0]))


def test_snapshot_and_suffix_equal_a_full_replay_at_every_round(world: World, tmp_path: Path) -> None:
    busy(world)
    states = replay(world.log).states
    decisions = world.decisions()
    for number in range(3, len(decisions)):
        # As a process that read so far would have left it.
        log = copy_of(world.control(), decisions[:number])
        follower = Follower(log, SnapshotStore(tmp_path / "none", world.log_id), CODE)
        follower._store = store = SnapshotStore(tmp_path / f"at-{number}", world.log_id)
        follower.save_snapshot()
        snapshot = store.newest()
        assert snapshot is not None
        assert snapshot.state == states[snapshot.header.control_index]
        assert folded(world.log, tmp_path / f"at-{number}") == states[max(states)]


def shuffled(state: State, chosen: random.Random) -> State:
    """Return the same state with every map filled in another order."""
    fields = {}
    for name in State.__struct_fields__:
        value = getattr(state, name)
        if isinstance(value, Map):
            items = list(value.items())
            chosen.shuffle(items)
            fields[name] = Map(items)
    return msgspec.structs.replace(state, **fields)


@pytest.mark.parametrize("seed", range(3))
def test_maps_filled_in_another_order_decide_the_same(seed: int, world: World) -> None:
    busy(world)
    rounds, _ = valid_rounds(world.log)
    chosen = random.Random(seed)
    state = State()
    for record in world.control():
        try:
            state = evolve(state, record.index, event_of(record))
        except (Undecodable, Inapplicable) as error:
            state = fail(state, record.index, str(error))
        if round_is_due(state):
            decided = decide(shuffled(state, chosen), 1)
            assert decided.record == rounds.get(record.index)
            state = shuffled(from_bytes(to_bytes(decided.state)), chosen) if decided.record else state


SEEDED = """
import hashlib, sys
from pathlib import Path
from gangline.events.log import CONTROL, Entry, Record
from gangline.events.codec import Undecodable, encode
from gangline.scheduler.canonical import to_bytes
from gangline.scheduler.decide import decide, round_is_due
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.evolve import evolve, fail
from gangline.scheduler.follow_loop import event_of
from gangline.scheduler.state import State
import msgspec
state, found = State(), hashlib.sha256()
for index, value in enumerate(msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=list[bytes])):
    try:
        state = evolve(state, index, event_of(Record(index, index, b"", value)))
    except (Undecodable, Inapplicable) as error:
        state = fail(state, index, str(error))
    if round_is_due(state):
        decided = decide(state, 1)
        if decided.record is not None:
            found.update(encode(decided.record))
            state = decided.state
            found.update(to_bytes(state))
print(found.hexdigest())
"""


def test_three_hash_seeds_decide_the_same_bytes(world: World, tmp_path: Path) -> None:
    busy(world)
    rounds, _ = valid_rounds(world.log)
    states = replay(world.log).states
    control = tmp_path / "control"
    control.write_bytes(msgspec.msgpack.encode([record.value for record in world.control()]))
    expected = hashlib.sha256()
    for index in sorted(rounds):
        expected.update(codec.encode(rounds[index]) + states[index])
    for seed in ("0", "1", "4242"):
        found = subprocess.run(
            [sys.executable, "-c", SEEDED, str(control)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert found.stdout.strip() == expected.hexdigest()


def test_a_loop_writes_snapshots_and_keeps_the_newest_three_and_every_boundary(world: World) -> None:
    busy(world, snapshot_records=5)
    first = snapshots(world)
    assert len(first) == KEPT
    world.loop().stop()
    boundary = snapshots(world)[-1].name
    new = world.loop(OTHER_CODE, snapshot_records=5)
    for _ in range(12):
        world.put(world.inputs.submit(gpus=99))
        world.settle(new)
    names = [path.name for path in snapshots(world)]
    assert boundary in names
    assert [name.split("-")[1] for name in names] == ["1"] + ["2"] * KEPT
    places = {f"bindings-{'-'.join(name.split('-')[:2])}.avro" for name in names}
    assert {path.name for path in world.folder.rglob("*.avro")} == places


def test_a_snapshot_comes_with_the_live_bindings(world: World) -> None:
    state = busy(world)
    world.loop().stop()
    place = snapshots(world)[-1]
    bindings = codec.decode((place.parent / f"bindings-{'-'.join(place.name.split('-')[:2])}.avro").read_bytes())
    assert isinstance(bindings, BindingsSnapshot)
    bound = [codec.decode(live.bound) for live in bindings.live]
    live = {job_id: job.attempt.bound for job_id, job in state.jobs.items() if job.attempt is not None}
    assert {one.job_id: one for one in bound if isinstance(one, GangBound)} == live
    assert live
    assert (bindings.tick_index, bindings.decisions_index) == (state.control_index, len(world.decisions()))


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "another state"])
def test_a_damaged_snapshot_is_named_and_the_one_before_is_taken(
    damage: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    busy(world, snapshot_records=5)
    newest = snapshots(world)[-1]
    data = newest.read_bytes()
    if damage == "another state":
        header, _ = msgspec.msgpack.decode(data)
        data = msgspec.msgpack.encode([header, b"another"])
        newest.unlink()
        newest = newest.with_name(f"{newest.name.rpartition('-')[0]}-{hashlib.sha256(data).hexdigest()}.snap")
        newest.write_bytes(data)
    else:
        bad = {"flipped": bytes([data[0] ^ 1]) + data[1:], "short": data[:-1], "empty": b""}[damage]
        newest.write_bytes(bad)
    states = replay(world.log).states
    assert folded(world.log, world.folder) == states[max(states)]
    assert [record.levelno for record in caplog.records if newest.name in record.message] == [logging.WARNING]


def test_files_that_are_no_snapshots_are_left_alone(world: World) -> None:
    busy(world, snapshot_records=5)
    odd = [snapshots(world)[0].parent / name for name in ("a-b-c.snap", "notes.txt", "1-1-1.snap")]
    for path in odd:
        path.write_bytes(b"mine")
    world.loop().stop()
    assert all(path.read_bytes() == b"mine" for path in odd)


def test_what_a_killed_writer_left_is_removed_but_not_what_is_being_written(world: World) -> None:
    loop = world.starts()
    loop.follower.save_snapshot()
    folder = snapshots(world)[0].parent
    old, fresh = folder / "5-1-x.snap.77-aa.tmp", folder / "5-1-x.snap.78-bb.tmp"
    old.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(old, (1, 1))
    loop.follower.save_snapshot()
    assert (old.exists(), fresh.exists()) == (False, True)


def test_bindings_that_another_loop_is_about_to_complete_are_not_dropped(world: World) -> None:
    loop = world.starts()
    loop.follower.save_snapshot()
    later = snapshots(world)[0].parent / "bindings-999-1.avro"
    later.write_bytes(b"")
    loop.follower.save_snapshot()
    assert later.exists()


def test_a_log_that_ends_before_the_snapshot_halts(world: World) -> None:
    busy(world)
    world.loop().stop()
    control, decisions = world.control(), world.decisions()
    tick = max(record.index for record in control if record.value.startswith(codec.header_of(ClockTicked)))
    for cut in (copy_of(control[: tick - 1], decisions), copy_of(control, decisions[:-1])):
        with pytest.raises(LogCut):
            Follower(cut, world.store, CODE)


def test_a_log_that_ends_before_its_last_round_halts_without_a_snapshot(world: World, tmp_path: Path) -> None:
    busy(world)
    cut = copy_of(world.control()[:-5], world.decisions())
    with pytest.raises(LogCut, match="is decided, but"):
        folded(cut, tmp_path / "none")


@pytest.mark.parametrize("rubbish", [True, False])
def test_a_log_of_the_same_length_with_other_records_halts(rubbish: bool, world: World, tmp_path: Path) -> None:
    busy(world)
    world.loop().stop()
    snapshot = world.store.newest()
    assert snapshot is not None
    control = world.control()
    at = snapshot.header.control_index
    tick = event_of(control[at])
    other = b"rubbish" if rubbish else codec.encode(msgspec.structs.replace(tick, meta=world.inputs.meta()))
    control[at] = control[at]._replace(value=other)
    replaced = copy_of(control, world.decisions())
    with pytest.raises(LogReplaced, match=f"record {at} of"):
        Follower(replaced, world.store, CODE)
    with pytest.raises(Exception, match=f"tick {at}|record {at}"):
        folded(replaced, tmp_path / "none")


def test_snapshots_of_another_log_are_not_taken(world: World, tmp_path: Path) -> None:
    busy(world, snapshot_records=5)
    other = World(tmp_path / "other")
    foreign = other.folder / other.log_id
    foreign.mkdir(parents=True)
    for path in snapshots(world):
        (foreign / path.name).write_bytes(path.read_bytes())
    assert other.store.newest() is None
    loop = other.starts()
    assert loop.follower.log_id == other.log_id


def test_topics_of_two_logs_are_refused(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    mixed = copy_of(world.control(), other.decisions())
    with pytest.raises(LogReplaced):
        Follower(mixed, world.store, CODE)
    assert identity.log_id(other.log) == other.log_id


def make_unwritable(folder: Path) -> None:
    """Put a file where the folder belongs: that stops even root, whom permissions do not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_bytes(b"")


def test_a_folder_that_cannot_be_written_costs_snapshots_but_not_decisions(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    loop = world.loop(snapshot_records=5)
    world.put(world.inputs.policy(), world.inputs.node())
    world.settle(loop)
    for path in sorted(world.folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    make_unwritable(world.folder / world.log_id)
    for _ in range(12):
        world.put(world.inputs.submit())
        world.settle(loop)
    warnings = [record for record in caplog.records if "no snapshot could be written" in record.message]
    assert 2 <= len(warnings) <= 12
    replay(world.log)
    with pytest.raises(SnapshotError):
        loop.stop()
    assert world.takeovers()[-1] == ""  # the next one need not wait, boundary or not


@pytest.fixture
def small_disk(world: World) -> Iterator[Path]:
    """Make the folder of snapshots a disk of 64 kB."""
    world.folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(world.folder)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield world.folder
    subprocess.run(["umount", "--lazy", str(world.folder)], check=True)


def test_a_full_disk_costs_snapshots_but_not_decisions(
    world: World, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = world.loop(snapshot_records=1)
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    world.put(world.inputs.policy(), world.inputs.node(), world.inputs.submit())
    world.settle(loop)
    assert "No space left on device" in caplog.text
    assert not [path for path in small_disk.rglob("*") if path.is_file() and path != filler]
    filler.unlink()
    world.put(world.inputs.submit())
    world.settle(loop)
    assert snapshots(world)
    replay(world.log)


def test_two_loops_write_snapshots_of_one_folder_at_once(world: World) -> None:
    busy(world)
    followers = [Follower(world.log, world.store, CODE) for _ in range(4)]
    threads = [threading.Thread(target=lambda one=one: [one.save_snapshot() for _ in range(10)]) for one in followers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(snapshots(world)) == 1
    assert not list(world.folder.rglob("*.tmp"))
