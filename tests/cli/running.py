"""A real `gangline up` in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

BOUND_S = 60.0
"""How long a test waits for what has to happen."""

COMMAND = [sys.executable, "-c", "from gangline.cli import main; main()"]


def until(condition: Callable[[], T], what: str) -> T:
    """Return what the condition returns once it is true."""
    deadline = time.monotonic() + BOUND_S
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"{what} did not happen within {BOUND_S:g} s"
        time.sleep(0.05)


class Up:
    """`gangline up` and what it says."""

    def __init__(self, home: Path, *words: str) -> None:
        self.home = home
        self._said = home.parent / f"{home.name}.said"
        self._stream = self._said.open("w")
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--home", str(home), *words], stdout=self._stream, stderr=self._stream
        )

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self._said.read_text()

    def ready(self) -> "Up":
        """Wait until it says that all is up."""
        until(lambda: "gangline is up" in self.said or self.process.poll() is not None, "coming up")
        assert self.process.poll() is None, self.said
        return self

    def children(self) -> dict[str, int]:
        """Return the process ids of the parts, by module."""
        found = {}
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in listed:
            # One that is about to end, or has not become its part yet, is none.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                found[words[2]] = int(pid)
        return found

    def end(self, signum: int = signal.SIGTERM) -> int:
        """Stop it; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signum)
        code = self.process.wait(BOUND_S)
        self._stream.close()
        return code


@contextlib.contextmanager
def up(home: Path, *words: str) -> Iterator[Up]:
    """Give a `gangline up` that is ready, and end it."""
    running = Up(home, *words)
    try:
        yield running.ready()
    finally:
        running.end()


@contextlib.contextmanager
def agent(home: Path, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give one more node of a running cluster, and end its agent."""
    with (home.parent / f"{name}.said").open("wb") as said:
        running = subprocess.Popen(
            [*COMMAND, "agent", "--home", str(home), "--node-id", name, "--address", "127.0.0.1", *words],
            stdout=said,
            stderr=said,
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(BOUND_S)


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def kill(pid: int) -> None:
    """Kill a process that this test started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
