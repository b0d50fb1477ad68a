"""Loops that are killed, in children that are forked from a process that has imported everything and opened nothing.

python -m tests.scheduler.crash_run reference FOLDER            run the script, note what was decided
python -m tests.scheduler.crash_run every FOLDER PART PARTS     kill at every boundary, restart, compare
python -m tests.scheduler.crash_run kills FOLDER COUNT SEED     keep two loops alive, and kill one after the other
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from gangline.events import codec, identity, sqlite_wal
from gangline.events.control import ClockTicked, TickerTookOver
from gangline.events.decisions import Answer, AnswerRepeated, InputQuarantined, RoomHeld
from gangline.events.log import CONTROL
from gangline.events.sqlite import SqliteLog
from gangline.events.sqlite_partition import Partition
from gangline.events.types import Decision, Event
from gangline.scheduler.loop import Loop
from gangline.scheduler.snapshot_store import SnapshotStore
from tests.scheduler.loop_world import CODE, Agents, Inputs, World, read_all
from tests.scheduler.replays import folded, replay, valid_rounds

WARM = (sqlite_wal,)
"""Imported before forking, for it is slow."""

SNAPSHOT_RECORDS = 12
KILLED_AGAIN = 5
"""Every so many of the kills at a boundary, the next loop is killed, too."""

SPEED = 20
"""How much faster than ours the loops' clocks run, so that a standby takes over within 150 ms."""


class Boundaries:
    """Counts the moments between two effects on files (appends, commits, fsyncs, renames, removals); kills at one.

    The moment before an effect is the one after the effect before, except where something else was written in between.
    """

    def __init__(self, kill_at: int | None) -> None:
        self.count = 0
        self._kill_at = kill_at

    def wrap(self, owner: type | ModuleType, name: str, *, before: bool = False) -> None:
        original = getattr(owner, name)

        def wrapped(*values: object, **named: object) -> object:
            if before:
                self._pass()
            result = original(*values, **named)
            self._pass()
            return result

        setattr(owner, name, wrapped)

    def _pass(self) -> None:
        self.count += 1
        if self.count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class CrashWorld(World):
    """A world whose inputs are appended once, however often its script runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SqliteLog(folder / "log"))

    def put_once(self, loop: Loop, value: bytes) -> None:
        if all(record.value != value for record in read_all(self.log, CONTROL)):
            self.put(value)
        self.settle(loop, step_s=0.5)

    def script(self) -> list[bytes]:
        """Return the commands; agents report what follows. The last one is a repeat, and some are no records at all."""
        inputs = self.inputs
        submits = [
            inputs.submit(gpus=3),
            inputs.submit(name="fails"),
            inputs.submit(gpus=99),
            inputs.submit(name="runs"),
            inputs.submit(gpus=4),
        ]
        repeat = msgspec.structs.replace(submits[1], meta=inputs.meta(submits[1].meta.command_id))
        values: list[Event | bytes] = [inputs.policy(), inputs.node(0), inputs.node(1), *submits[:2], b"rubbish"]
        values += [*submits[2:], repeat]
        return [one if isinstance(one, bytes) else codec.encode(one) for one in values]

    def run_script(self) -> None:
        loop = self.loop(snapshot_records=SNAPSHOT_RECORDS)
        with closing(Agents(self.log, Inputs(self.log_id, "agents"))) as agents:
            self.settle(loop, step_s=0.5)
            for value in self.script():
                self._put_facts(loop, agents)
                self.put_once(loop, value)
            self._put_facts(loop, agents)
        loop.stop()

    def _put_facts(self, loop: Loop, agents: Agents) -> None:
        while facts := agents.report():
            for fact in facts:
                self.put_once(loop, codec.encode(fact))

    def inputs_on_log(self) -> list[str]:
        """Return what others than tickers appended."""
        tickers = tuple(codec.header_of(cls) for cls in (ClockTicked, TickerTookOver))
        return [record.value.hex() for record in self.control()[1:] if not record.value.startswith(tickers)]


def plain(decision: Decision) -> str:
    """Return a decision without the indices and times in it that depend on how many tickers took over before."""
    if isinstance(decision, AnswerRepeated):
        decision = msgspec.structs.replace(decision, first_control_index=0)
    if isinstance(decision, Answer | InputQuarantined):
        decision = msgspec.structs.replace(decision, control_index=0)
    if isinstance(decision, RoomHeld) and decision.until_us is not None:
        decision = msgspec.structs.replace(decision, until_us=0)
    return codec.encode(decision).hex()


def in_child(task: Callable[[], object]) -> int:
    """Run a task in a forked child; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        task()
    except BaseException:  # noqa: BLE001 - the child ends here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(folder: Path, kill_at: int | None) -> int:
    """Run the script up to a boundary; return how many there are."""
    boundaries = Boundaries(kill_at)
    world = CrashWorld(folder)
    boundaries.wrap(os, "fsync", before=True)  # a file was written, or renamed
    for owner, name in ((SqliteLog, "append"), (Partition, "_commit"), (Path, "rename"), (Path, "unlink")):
        boundaries.wrap(owner, name)
    world.run_script()
    world.log.close()
    return boundaries.count


def reference(folder: Path) -> None:
    with closing(SqliteLog(folder / "template" / "log")) as log:
        identity.create(log, actor="test")
    shutil.copytree(folder / "template", folder / "reference")
    count = run(folder / "reference", None)
    world = CrashWorld(folder / "reference")
    decisions = [plain(one) for one in replay(world.log).decisions]
    found = {"boundaries": count, "inputs": world.inputs_on_log(), "decisions": decisions}
    (folder / "reference.json").write_text(json.dumps(found))
    world.log.close()


def recover(folder: Path, expected: dict[str, Any]) -> None:
    """Run on after a kill, and compare with a run that nobody killed."""
    world = CrashWorld(folder)
    before, _ = valid_rounds(world.log)
    world.run_script()
    after, _ = valid_rounds(world.log)
    assert {index: after[index] for index in before} == before
    assert world.inputs_on_log() == expected["inputs"]
    replayed = replay(world.log)
    assert [plain(one) for one in replayed.decisions] == expected["decisions"]
    last = replayed.states[max(replayed.states)]
    assert folded(world.log, folder / "none") == last
    boundary = world.store.newest()
    assert boundary is not None
    assert boundary.state == last
    world.log.close()


def every(folder: Path, part: int, parts: int) -> None:
    expected = json.loads((folder / "reference.json").read_text())
    for kill_at in range(1 + part, expected["boundaries"] + 1, parts):
        site = folder / f"kill-{kill_at}"
        shutil.copytree(folder / "template", site)
        status = status_of(in_child(partial(run, site, kill_at)))
        assert status == -signal.SIGKILL, f"boundary {kill_at}: {status}"
        if kill_at % KILLED_AGAIN == 0:  # and within what the next one does first
            status_of(in_child(partial(run, site, 1 + kill_at % 40)))
        status = status_of(in_child(partial(recover, site, expected)))
        assert status == 0, f"after a kill at boundary {kill_at}"
        shutil.rmtree(site)


def live(folder: Path) -> None:
    """Decide until killed."""
    log = SqliteLog(folder / "log")
    store = SnapshotStore(folder / "snapshots", identity.log_id(log))
    loop = Loop(
        log,
        store,
        code_digest=CODE,
        open_term=True,
        snapshot_records=50,
        monotonic_s=lambda: time.monotonic() * SPEED,
    )
    while True:
        loop.step(0.02)


def kills(folder: Path, count: int, seed: int) -> None:
    chosen = random.Random(seed)
    alive = [in_child(partial(live, folder)) for _ in range(2)]
    for _ in range(count):
        time.sleep(chosen.uniform(0.02, 0.4))  # the moment is the test's random input
        victim = alive.pop(chosen.randrange(2))
        os.kill(victim, signal.SIGKILL)
        status = status_of(victim)
        assert status == -signal.SIGKILL, f"a loop ended by itself: {status}"
        alive.append(in_child(partial(live, folder)))
    for victim in alive:
        os.kill(victim, signal.SIGKILL)
        status_of(victim)


def main() -> None:
    mode, folder, *numbers = sys.argv[1:]
    modes: dict[str, Callable[..., None]] = {"reference": reference, "every": every, "kills": kills}
    modes[mode](Path(folder), *(int(number) for number in numbers))


if __name__ == "__main__":
    main()
