"""What a user waits for: from `gangline submit` to the first line of every rank, and for the command line itself.

Everything is embedded, as `gangline up --gpus 2` runs it, and every wait includes the start of the command's process.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure

GANGLINE = Path(sys.executable).parent / "gangline"
FIRST_LINE = "import time; print(time.time_ns())"
RANKS = 2
READY_S = 60.0


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield the waits of launching and of reading."""
    with tempfile.TemporaryDirectory(prefix="gangline-launch-") as folder:
        home = Path(folder) / "home"
        with _up(home):
            _launch(home)  # pays for the page cache
            waits_s = sorted(_launch(home) for _ in range(10 if quick else 50))
            reads_s = [_read(home) for _ in range(10 if quick else 50)]
        bare_s = [_timed([sys.executable, "-c", ""], home) for _ in range(20)]
    count = len(waits_s)
    reference = f"`gangline submit` typed to both ranks inside their first line, {count} jobs"
    yield _figure("launch.p50_s", statistics.median(waits_s), 1.0, reference)
    yield _figure("launch.p99_s", waits_s[min(count - 1, (count * 99 + 99) // 100 - 1)], 3.0, reference)
    bare = f"`gangline jobs` from start to end; bare python {statistics.median(bare_s):.3f} s"
    yield _figure("launch.cli_p50_s", statistics.median(reads_s), 0.4, bare)


def _figure(name: str, value: float, goal: float, reference: str) -> Figure:
    return Figure(name=name, value=value, unit="s", goal=goal, better="lower", reference=reference)


@contextmanager
def _up(home: Path) -> Iterator[None]:
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            [GANGLINE, "up", "--home", home, "--gpus", str(RANKS)], stdout=output, stderr=subprocess.STDOUT
        ) as up,
    ):
        try:
            deadline = time.monotonic() + READY_S
            while not _nodes(home):
                if up.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    raise RuntimeError(f"gangline did not come up: {output.read().decode()}")
                time.sleep(0.1)
            yield
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait()


def _nodes(home: Path) -> list[Any]:
    done = _run(home, "nodes", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else []


def _run(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "GANGLINE_HOME": str(home)}
    return subprocess.run([GANGLINE, *words], env=environment, capture_output=True, text=True, check=False)


def _launch(home: Path) -> float:
    """Submit a gang, wait for its end, and return the seconds from typing to the first line of its last rank."""
    typed_ns = time.time_ns()
    submitted = _run(home, "submit", "--json", "--gpus", str(RANKS), "--", "python", "-c", FIRST_LINE)
    if submitted.returncode:
        raise RuntimeError(f"gangline submit failed: {submitted.stderr}")
    job_id = json.loads(submitted.stdout)["job_id"]
    waited = _run(home, "job", "wait", job_id)
    if waited.returncode:
        raise RuntimeError(f"the job failed: {waited.stderr}")
    # Every output file of a rank; one of them has its line.
    printed = [path.read_text().split() for path in home.glob(f"agents/*/attempts/{job_id}-1/rank-*")]
    times_ns = [int(words[0]) for words in printed if words and words[0].isdigit()]
    if len(times_ns) != RANKS:
        raise RuntimeError(f"{len(times_ns)} of {RANKS} ranks printed their line")
    return (max(times_ns) - typed_ns) / 1e9


def _read(home: Path) -> float:
    return _timed([GANGLINE, "jobs"], home)


def _timed(command: list[str | Path], home: Path) -> float:
    start = time.perf_counter()
    subprocess.run(command, env={**os.environ, "GANGLINE_HOME": str(home)}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start
