"""Runs a program of the operator's to its end, or to its time: it may hang, and leave children behind."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """How a program ended, and the beginning of what it said on both outputs, without white space around it."""

    code: int | None
    """None: it took too long, and was killed with all that it had started in its session."""
    said: str


def run_program(
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    said_bytes: int,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program without a shell, `given` on its standard input. Raises OSError if it cannot be started."""
    # Into a file, for a child that the program leaves behind may hold a pipe open.
    with tempfile.TemporaryFile() as output:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
        code: int | None = None
        try:
            running.communicate(given, timeout=timeout_s)
            code = running.returncode
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
        output.seek(0)
        return Ended(code, output.read(said_bytes).decode(errors="replace").strip())
