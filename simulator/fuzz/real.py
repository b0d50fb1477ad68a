"""The same worlds on a real log, SQLite's or Kafka's: a scheduler's process decides, is killed, and is started again.

Its clocks are those of the world: virtual time passes only as the world lets it, so that minutes take a second.
"""

import ctypes
import os
import signal
import time
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from gangline.events import codec, identity
from gangline.events.control import LogCreated
from gangline.events.identity import FORMAT
from gangline.events.log import CONTROL, DECISIONS, Entry, Log
from gangline.events.open_log import open_log
from gangline.events.types import SECOND_US, Meta
from gangline.scheduler.decide import next_due_us
from gangline.scheduler.loop import Loop
from gangline.scheduler.snapshot_store import SnapshotStore
from gangline.simulator.fuzz.acts import LOG_ID, START_US
from gangline.simulator.fuzz.dice import keyed
from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.mirror import ANSWERS_S, KEY, Mirror
from gangline.simulator.fuzz.plan import Plan
from gangline.simulator.fuzz.scene import Violation
from gangline.simulator.fuzz.world import FuzzWorld, Ran, run_world

CODE = "fuzz"
"""What stands for the digest of the code: all processes of a world run the same."""
SNAPSHOT_RECORDS = 20
NUDGE_US = 20_000
"""How much time passes for the scheduler while it is waited for."""
KILLED_PERCENT = 4
"""Passes in which the scheduler is killed, beside those in which the case says so."""
KILLED_WITHIN_MS = 20
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["gangline.scheduler.loop", "gangline.events.sqlite", "gangline.events.kafka"])


def decide_for_ever(url: str, home: Path, clock: "ctypes.c_int64") -> None:
    """Be a scheduler's process, until killed."""
    with closing(open_log(url)) as log:
        loop = Loop(
            log,
            SnapshotStore(home / "snapshots", identity.log_id(log)),
            code_digest=CODE,
            open_term=True,
            snapshot_records=SNAPSHOT_RECORDS,
            wall_us=lambda: clock.value,
            monotonic_s=lambda: clock.value / SECOND_US,
        )
        while True:
            loop.step(0.02)


class RealWorld(FuzzWorld):
    """A case under way on a real log. What it finds must not depend on when a process is killed."""

    def __init__(self, plan: Plan, log: Log, url: str, home: Path) -> None:
        """Take an empty log, and the folder for snapshots."""
        self._log = log
        self._url = url
        self._home = home
        self._clock = _CONTEXT.RawValue(ctypes.c_int64, START_US)
        self._process: ForkServerProcess | None = None
        self._passes = 0
        created = LogCreated(meta=Meta(event_id=bytes(16), actor="fuzz", at_us=START_US), log_id=LOG_ID, format=FORMAT)
        for topic in (CONTROL, DECISIONS):
            log.append(topic, [Entry(KEY, codec.encode(created))])
        super().__init__(plan)
        self.kills = 0

    def _core(self) -> Mirror:
        self.mirror = Mirror(self.machines, self._log, self._nudge)
        return self.mirror

    def _begin(self) -> None:
        self._start()

    def _decide(self) -> None:
        """Let the scheduler decide until nothing is due; kill it now and then, at any moment."""
        self._passes += 1
        self._clock.value = max(self._clock.value, START_US + self.now_s * SECOND_US)
        seed, crash = self.plan.noise.seed, self.acts.crash
        self.acts.crash, self.acts.skew_s = None, 0
        if crash is not None or keyed(seed, "kill", self._passes) % 100 < KILLED_PERCENT:
            time.sleep(keyed(seed, "moment", self._passes) % KILLED_WITHIN_MS / 1000)  # the input is the moment
            self._kill()
            self._start()
        deadline_s = time.monotonic() + ANSWERS_S
        while True:
            self._read(self.mirror.follow())
            due_us = next_due_us(self.core.state)
            waits = self.mirror.is_behind or self.core.state.awaiting_round
            if not waits and (due_us is None or due_us > self.core.state.now_us):
                break
            self._nudge()
            if time.monotonic() > deadline_s:
                raise Violation("a_process_decides_what_is_due", len(self.core.control) - 1, "it does not")

    def _nudge(self) -> None:
        self._clock.value += NUDGE_US
        process = self._process
        if process is not None and process.exitcode is not None:
            raise Violation("a_process_goes_on", len(self.core.control) - 1, f"it ended with {process.exitcode}")

    def _start(self) -> None:
        self._process = _CONTEXT.Process(target=decide_for_ever, args=(self._url, self._home, self._clock), daemon=True)
        self._process.start()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            self.kills += 1

    def close(self) -> None:
        """End the process, and compare what is left. Raises Violation."""
        self._kill()
        self.mirror.close()


def attempt_on(seed: int, url: str, home: Path) -> str | None:
    """Run the world of a seed on a new log at this address; return what did not hold, if anything."""
    try:
        run_on(generate(seed), url, home)
    except Violation as violation:
        return str(violation)
    return None


def run_on(plan: Plan, url: str, home: Path) -> Ran:
    """Run a case on a new log at this address. Raises Violation."""
    with closing(open_log(url, create=True)) as log:
        world = RealWorld(plan, log, url, home)
        try:
            ran = run_world(world)
        finally:
            world.close()
        return ran
