"""Runs gangline's parts as child processes: starts them, starts them again, stops them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from gangline.cli.output import say
from gangline.schemas.errors import GanglineError

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses before a part that ended is started again."""

HEALTHY_S = 10.0
"""A part that ran so long before it ended starts with the first pause again; one that never does is given up."""

SPARED_S = 30.0
"""Between starts of a part that gangline goes on without. Whoever mends what is wrong waits no longer than that."""

STOP_S = 20.0
"""How long parts have to stop: the scheduler finishes its round and writes a snapshot."""

MAX_LOG_BYTES = 10_000_000
"""A part's file of messages is put aside, one generation, when it is larger at a start."""

SHOWN_BYTES = 2_000
"""So much of a part's last words is shown when it is given up."""

_PR_SET_PDEATHSIG = 1


class GaveUp(GanglineError):
    """A part ends again and again."""


class Part:
    """One child process, through its restarts."""

    def __init__(self, name: str, arguments: Sequence[str], log_file: Path, *, without: str = "") -> None:
        """`without` says what is missing while it does not run, if the others can go on: then it is never given up."""
        self.name = name
        self._without = without
        self.log_file = log_file
        self._arguments = [sys.executable, "-m", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._said_from = 0
        self._failures = 0
        self._told = ""
        self._due_s = 0.0

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it, its messages going to its file. Raises GanglineError if the file cannot be written."""
        try:
            with _messages(self.log_file) as stream:
                self._said_from = stream.tell()
                self._process = subprocess.Popen(  # noqa: S603 - our own parts
                    self._arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,
                    preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509 - this process has one thread
                )
        except OSError as error:
            raise GanglineError(f"{self.name} cannot be started: {error}") from error
        self._started_s = time.monotonic()

    def look(self) -> None:
        """Start it again if it has ended and its pause is over. Raises GaveUp."""
        if self._process is None:
            if time.monotonic() >= self._due_s:
                self.start()
            return
        if (code := self._process.poll()) is None:
            if self._failures > len(BACKOFF_S) and time.monotonic() - self._started_s >= HEALTHY_S:
                self._failures, self._told = 0, ""
                say(f"the {self.name} runs again")
            return
        self._process = None
        healthy = time.monotonic() - self._started_s >= HEALTHY_S
        self._failures = 1 if healthy else self._failures + 1
        if self._failures > len(BACKOFF_S):
            self._give_up(code)
            return
        pause_s = BACKOFF_S[self._failures - 1]
        self._due_s = time.monotonic() + pause_s
        say(f"the {self.name} ended with {code}, starting it again in {pause_s:g} s; see {self.log_file}")

    def _give_up(self, code: int) -> None:
        """Raise GaveUp, or say so and let the others go on."""
        ends = f"the {self.name} ends again and again (now with {code})"
        if not self._without:
            raise GaveUp(f"{ends}. Its last words:\n{self.last_words()}")
        self._due_s = time.monotonic() + SPARED_S
        words = self.last_words()
        # Said once for each thing that is wrong, not every half minute.
        if words != self._told:
            self._told = words
            say(
                f"WARNING: {ends}, and {self._without}. All else goes on, and it is started again every "
                f"{SPARED_S:g} s; mend what it says:\n{words}"
            )

    def last_words(self) -> str:
        """Return what it said since it was started last, or the end of that."""
        with self.log_file.open("rb") as stream:
            stream.seek(max(self._said_from, self.log_file.stat().st_size - SHOWN_BYTES))
            return stream.read().decode(errors="replace").strip() or "(it said nothing)"

    def terminate(self) -> None:
        """Ask it to stop."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait(self, deadline_s: float) -> None:
        """Wait until it has stopped, and kill it at the deadline."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            say(f"the {self.name} does not stop within {STOP_S:g} s and is killed; see {self.log_file}")
            self._process.kill()
            self._process.wait()
        self._process = None


def stop(parts: Sequence[Part]) -> None:
    """Stop the parts in order, each given what is left of STOP_S."""
    deadline_s = time.monotonic() + STOP_S
    for part in parts:
        part.terminate()
    for part in parts:
        part.wait(deadline_s)


def _messages(path: Path) -> IO[bytes]:
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.rename(path.with_suffix(".log.1"))
    stream = path.open("ab")
    stream.seek(0, os.SEEK_END)
    return stream


def _die_with_parent(parent: int) -> Callable[[], None]:
    """Return what makes the child get SIGTERM when its parent ends, however that ends."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
