"""Loops may be killed at any moment: nothing that was acknowledged is lost, and no decision is doubled or changed."""

import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gangline.events.decisions import JobEnded
from gangline.events.sqlite import SqliteLog
from tests.scheduler.loop_world import Agents, Inputs, World
from tests.scheduler.replays import folded, replay

ROOT = Path(__file__).parent.parent.parent
KILLS = 200
PARTS = 2
"""So many processes share the boundaries; each is a test of its own, so that they run beside each other."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory, if there is one: kills, unlike power cuts, do not depend on what reached the disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="gangline-") as name:
        yield Path(name)


def crash_run(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.scheduler.crash_run", *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def succeeds(process: "subprocess.Popen[str]") -> None:
    output, _ = process.communicate()
    assert process.returncode == 0, output


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_boundary_loses_doubles_and_changes_nothing(part: int, folder: Path) -> None:
    succeeds(crash_run("reference", folder))
    succeeds(crash_run("every", folder, part, PARTS))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_hundred_kills_under_load_lose_double_and_change_nothing(folder: Path) -> None:
    world = World(folder, SqliteLog(folder / "log"))
    world.put(world.inputs.policy(), *(world.inputs.node(number, gpus=8) for number in range(4)))
    commands: list[bytes] = []
    stopping = threading.Event()

    def submit() -> None:
        inputs = Inputs(world.log_id, "submits")
        while not stopping.wait(0.03):
            number = len(commands)
            command = inputs.submit(gpus=1 + number % 5, name="fails" if number % 4 == 0 else "train")
            world.put(command, *([command] if number % 9 == 0 else []), *([b"rubbish"] if number % 50 == 0 else []))
            commands.append(command.meta.command_id or b"")

    def report() -> None:
        with closing(Agents(world.log, Inputs(world.log_id, "agents"))) as agents:
            while not stopping.wait(0.02):
                if facts := agents.report():
                    world.put(*facts)

    threads = [threading.Thread(target=work) for work in (submit, report)]
    for thread in threads:
        thread.start()
    try:
        succeeds(crash_run("kills", folder, KILLS, 3))
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    finish(world, len(commands))
    replayed = replay(world.log, keep_states=False)
    answers = replayed.answers()
    assert len(commands) > KILLS
    assert Counter({command: answers[command] for command in commands}) == Counter(dict.fromkeys(commands, 1))
    ended = Counter(one.job_id for one in replayed.decisions if isinstance(one, JobEnded))
    assert len(ended) == len(commands)
    assert set(ended.values()) == {1}
    assert folded(world.log, folder / "none") == replayed.states[max(replayed.states)]
    world.log.close()


def finish(world: World, jobs: int) -> None:
    """Let one loop go on until every job has ended."""
    loop = world.loop()
    with closing(loop), closing(Agents(world.log, Inputs(world.log_id, "agents"))) as agents:

        def ended() -> bool:
            if facts := agents.report():
                world.put(*facts)
            return sum(isinstance(one, JobEnded) for one in agents.decisions) >= jobs

        world.run_until(ended, loop)
        world.settle(loop)
