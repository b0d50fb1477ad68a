"""The agent of a node: registers it, beats, launches what is bound to it, and reports what becomes of that.

It decides nothing. Shims hold the ranks, so it may die at any time; when it is back it goes by the run folders.
"""

import contextlib
import fcntl
import logging
import os
import re
import shutil
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gangline.agents.bindings import Binding
from gangline.agents.check import examine
from gangline.agents.facts import Facts
from gangline.agents.follower import Follower
from gangline.agents.health import EVERY_S, HealthWatch
from gangline.agents.inventory import Inventory
from gangline.agents.outbox import Outbox
from gangline.agents.pace import WINDOW_S
from gangline.agents.run_folder import AttemptKey, RunFolder, key_of
from gangline.agents.share import Crew, LocalShare
from gangline.agents.stores import Limits, StoreWatch
from gangline.events import codec
from gangline.events.log import HEARTBEATS, PARTITIONS, Entry, Log, LogError, LogFull, LogUnavailable
from gangline.events.types import Value
from gangline.schemas.errors import GanglineError, Refused, UsageError

HEARTBEAT_S = 2.0
"""Between beats; the detector's limit of 10 s then allows for four lost ones."""

POLL_S = 0.05
"""How often shares are looked at while there are any; a new decision wakes the agent at once."""

IDLE_POLL_S = 1.0
"""How often an agent without shares looks around."""

FLUSH_S = 2.0
"""How long a closing agent waits for its last facts; a restarted one finds them in the run folders."""

KEPT_RUN_FOLDERS = 200
"""Run folders of ended attempts that stay for their output; older ones are deleted."""

MAX_LAUNCHES = 8
MAX_SCANS = 4
"""Threads that launch shares and verify checkpoints at a time."""

NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_log = logging.getLogger(__name__)


class Watched(Value, frozen=True, kw_only=True):
    """What an agent looks at by itself, every `every_s`: its node, with a program if there is one, and stores."""

    every_s: float = EVERY_S
    program: Path | None = None
    stores: tuple[str, ...] = ()
    limits: Limits = Limits()
    pace_window_s: float = WINDOW_S


class Agent:
    """One node's agent."""

    def __init__(self, home: Path, log: Log, inventory: Inventory, watched: Watched | None = None) -> None:
        """Take the node's folder under `home`.

        Raises UsageError for a node id that is no file name, Refused if another agent has the folder or it cannot be
        written.
        """
        if not NODE_ID.fullmatch(inventory.node_id):
            raise UsageError(f"--node-id {inventory.node_id!r}: use letters, digits, '.', '_' and '-', at most 128")
        self._inventory = inventory
        self._log = log
        self._folder = home.absolute() / "agents" / inventory.node_id
        self._attempts = self._folder / "attempts"
        self._lock = _take(self._folder, self._attempts, inventory.node_id)
        self._failure: GanglineError | None = None
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._facts = Facts(inventory)
        self._outbox = Outbox(log, self._fail)
        self._watched = watched or Watched()
        self._health = HealthWatch(inventory, self._folder, self._watched.program, self._facts, self._outbox)
        self._stores = StoreWatch(self._watched.stores, self._watched.limits, self._facts, self._outbox)
        self._launches = ThreadPoolExecutor(MAX_LAUNCHES, "launch")
        self._scans = ThreadPoolExecutor(MAX_SCANS, "scan")
        self._crew = Crew(
            home=home.absolute(),
            inventory=inventory,
            facts=self._facts,
            outbox=self._outbox,
            launches=self._launches,
            scans=self._scans,
            pace_window_s=self._watched.pace_window_s,
        )
        self._shares: dict[AttemptKey, LocalShare] = {}
        self._told_registered = False
        self._checked: int | None = None
        """The last command to examine the node that was taken up."""
        self._follower = Follower(
            log,
            inventory.node_id,
            home=home.absolute(),
            identity_file=self._folder / "log_id",
            on_change=self._wake.set,
            on_failure=self._fail,
        )

    def run(self) -> None:
        """Work until `stop` is called. Raises the GanglineError that makes going on impossible; ranks run on then."""
        self._adopt()
        self._outbox.start()
        self._follower.start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        try:
            while not self._closing.is_set():
                self._wake.wait(POLL_S if any(not share.over for share in self._shares.values()) else IDLE_POLL_S)
                self._wake.clear()
                self._step()
        finally:
            self._close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End `run` soon; shims and ranks run on. May be called from a signal handler."""
        self._closing.set()
        self._wake.set()

    def _fail(self, error: GanglineError) -> None:
        self._failure = self._failure or error
        self.stop()

    def _registered(self) -> None:
        has = self._inventory
        _log.warning("node %s is registered: %d x %s, pod %s", has.node_id, len(has.gpus), has.gpu_type, has.pod)

    def _adopt(self) -> None:
        """Take over what earlier agents left; what is reported to its end is only remembered."""
        for path in sorted(self._attempts.iterdir()):
            key = key_of(path.name)
            if key is None:
                continue
            folder = RunFolder(path)
            share = LocalShare(key, folder, self._crew)
            if folder.reported:
                share.over = True
            elif not share.adopt():
                continue  # its launch was interrupted before anything ran; if it is bound it is launched afresh
            else:
                _log.warning("attempt %d of %s is adopted", key.attempt, key.job_id)
            self._shares[key] = share

    def _step(self) -> None:
        live = self._follower.live
        if live is not None:
            self._register(live)
            self._reconcile(live)
        asked = self._follower.check_index
        if asked is not None and asked != self._checked:
            self._checked = asked
            self._scans.submit(self._check, asked)
        for share in self._shares.values():
            try:
                share.poll()
            except OSError as error:
                if share.trouble != str(error):
                    share.trouble = str(error)
                    _log.warning("attempt %d of %s: %s", share.key.attempt, share.key.job_id, error)

    def _register(self, live: dict[AttemptKey, Binding]) -> None:
        """Register the node once, when it is known what may still run here: what was adopted, and what is bound."""
        if self._told_registered:
            return
        held = [key for key, share in self._shares.items() if not share.over]
        held += [key for key in live if key not in self._shares]
        registered = self._facts.registered(held)
        self._told_registered = self._outbox.put(self._inventory.node_id, registered, self._registered)

    def _reconcile(self, live: dict[AttemptKey, Binding]) -> None:
        """Bring what runs here to what is bound here."""
        for key, binding in live.items():
            share = self._shares.get(key)
            if share is None:
                share = self._shares[key] = LocalShare(key, RunFolder(self._attempts / key.folder_name), self._crew)
                if binding.stop is None:
                    share.launch(binding)
                else:
                    share.never_launched()
            elif binding.stop is not None:
                share.stop(binding.stop.grace_us)
            elif binding.ends_at_us is not None:
                with contextlib.suppress(OSError):  # tried again at the next look; the job may have filled the disk
                    share.warn(binding.ends_at_us)
        for key in [key for key in self._shares if key not in live]:
            if self._shares[key].over:
                del self._shares[key]
                self._prune()
            else:
                self._shares[key].stop(0)  # it has ended for everyone else, so nothing of it may run here

    def _check(self, asked: int) -> None:
        """Examine the node and report it. One that cannot be sent is asked for again when an agent registers."""
        found = examine(self._inventory, self._folder)
        _log.warning("the node was examined: %s", found.report)
        fact = self._facts.checked(asked, healthy=found.healthy, report=found.report)
        if not self._outbox.put(self._inventory.node_id, fact):
            _log.warning("too many facts wait for the log; the report of the check is dropped")

    def _prune(self) -> None:
        """Delete the oldest run folders of ended attempts beyond those that are kept."""
        kept = {key.folder_name for key in self._shares}
        ended = [path for path in self._attempts.iterdir() if path.name not in kept]
        ended.sort(key=lambda path: path.stat().st_mtime_ns)
        for path in ended[:-KEPT_RUN_FOLDERS]:
            shutil.rmtree(path, ignore_errors=True)

    def _beat(self) -> None:
        """Append a heartbeat every HEARTBEAT_S, without backlog: one that cannot be appended is worth nothing later."""
        partition = zlib.crc32(self._inventory.node_id.encode()) % PARTITIONS[HEARTBEATS]
        sequence = 0
        while not self._closing.is_set():
            began_s = time.monotonic()
            entry = Entry(self._inventory.node_id.encode(), codec.encode(self._facts.heartbeat(sequence)))
            sequence += 1
            try:
                self._log.append(HEARTBEATS, [entry], partition=partition)
            except (LogUnavailable, LogFull) as error:
                _log.debug("a heartbeat is lost: %s", error)  # the outbox and the follower say so once
            except LogError as error:
                self._fail(error)
            self._closing.wait(max(0.0, HEARTBEAT_S - (time.monotonic() - began_s)))

    def _watch(self) -> None:
        """Look at the node and the stores at times; what the log does not know yet cannot be sick."""
        while not self._closing.is_set():
            if self._told_registered:
                try:
                    self._stores.look()
                    self._health.look()
                except OSError as error:
                    _log.warning("the node cannot be examined now: %s", error)
            self._closing.wait(self._watched.every_s if self._told_registered else IDLE_POLL_S)
        self._health.close()

    def _close(self) -> None:
        self._closing.set()
        self._launches.shutdown(wait=True, cancel_futures=True)
        if self._failure is None:
            self._outbox.flush(FLUSH_S)
        self._outbox.close()
        self._follower.close()
        self._scans.shutdown(wait=False, cancel_futures=True)
        os.close(self._lock)


def _take(folder: Path, attempts: Path, node_id: str) -> int:
    """Make the node's folder and return the descriptor that locks it."""
    try:
        attempts.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Refused(
            f"the agent cannot write to {folder}: {error.strerror}; make it writable, or choose another folder with "
            "--home"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        os.close(lock)
        raise Refused(
            f"an agent of node {node_id} already runs in {folder} (process {holder}): stop it first, or give this one "
            "another --node-id"
        ) from error
    with contextlib.suppress(OSError):  # only for the message above
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
