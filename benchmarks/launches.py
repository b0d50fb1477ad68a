"""Submissions decided per second by a scheduler's process over the log in SQLite, each answer read back durable."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.log_sqlite import bare_sync_us
from benchmarks.records import node_registered, submission
from gangline.cli.commands import MAX_BATCH, Commands, new_meta
from gangline.events import codec, identity, ids
from gangline.events.control import ActivatePolicy, SubmitJob
from gangline.events.decisions import JobAdmitted
from gangline.events.log import CONTROL, Entry
from gangline.events.policy import Policy, Queue
from gangline.events.sqlite import SqliteLog
from gangline.schemas.errors import GanglineError

NODES = 512
SINGLE = 2_000
QUICK_SINGLE = 500
BATCHES = 10
QUICK_BATCHES = 3
WARM_UP = 50
"""Submissions before those that are measured."""
READY_S = 60.0
"""How long the scheduler may take until it answers at first, and until it ends."""
SYNC_MS = 1.0
"""The goal for one at a time holds where a bare fdatasync takes at most so long: three follow each other in each."""
SINGLE_GOAL = 200.0
BATCHED_GOAL = 2_000.0


class NoScheduler(GanglineError):
    """The scheduler's process ended before its time."""


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield `launches.*`, measured in the folder for temporary files (set TMPDIR to measure another disk)."""
    with tempfile.TemporaryDirectory(prefix="gangline-launches-") as folder, _cluster(Path(folder)) as commands:
        sync_ms = bare_sync_us(Path(folder)) / 1000
        _sent_one_by_one(commands, WARM_UP)
        count = QUICK_SINGLE if quick else SINGLE
        single = count / _sent_one_by_one(commands, count)
        rounds = QUICK_BATCHES if quick else BATCHES
        batched = rounds * MAX_BATCH / _sent_in_batches(commands, rounds)
        sync_ms = min(sync_ms, bare_sync_us(Path(folder)) / 1000)
    beside = f"bare fdatasync p50 {sync_ms:.2f} ms; 10,000 a day asked, Slurm states 500/s"
    yield Figure(
        name="launches.single_per_s",
        value=single,
        unit="jobs/s",
        goal=SINGLE_GOAL if sync_ms <= SYNC_MS else None,
        better="higher",
        reference=f"{count:,} jobs, one after another; {beside}"
        + ("" if sync_ms <= SYNC_MS else f"; the goal of {SINGLE_GOAL:.0f} is for {SYNC_MS:g} ms at most"),
    )
    yield Figure(
        name="launches.batched_per_s",
        value=batched,
        unit="jobs/s",
        goal=BATCHED_GOAL,
        better="higher",
        reference=f"{rounds} batches of {MAX_BATCH:,} jobs, one after another; {beside}",
    )


@contextmanager
def _cluster(folder: Path) -> Iterator[Commands]:
    """Give what sends commands to a scheduler's process whose cluster has 512 idle nodes of 8 GPUs."""
    with ExitStack() as stack:
        log = stack.enter_context(closing(SqliteLog(folder / "log")))
        identity.create(log, actor="benchmark")
        log.append(CONTROL, [_registered(number) for number in range(NODES)])
        said = stack.enter_context((folder / "said").open("wb"))
        command = [sys.executable, "-m", "gangline.scheduler", "--home", str(folder), "--log", f"sqlite:{log.folder}"]
        process = subprocess.Popen([*command, "--open-term"], stdout=said, stderr=said)
        try:
            commands = stack.enter_context(closing(Commands(log, folder / "snapshots")))
            policy = ActivatePolicy(meta=new_meta(), policy=Policy(queues=(Queue(path="default"),)))
            commands.send(policy, key="policy", timeout_s=READY_S)
            yield commands
        finally:
            process.terminate()
            ended = process.wait(READY_S)
    if ended:
        raise NoScheduler(f"the scheduler ended with exit code {ended}: {(folder / 'said').read_text().strip()}")


def _registered(number: int) -> Entry:
    event = node_registered(number)
    return Entry(event.node_id.encode(), codec.encode(event))


def _job(commands: Commands, number: int) -> tuple[str, SubmitJob]:
    command = SubmitJob(meta=new_meta(), spec=submission(number).spec)
    return ids.job_id(commands.log_id, command.meta.command_id or b""), command


def _sent_one_by_one(commands: Commands, count: int) -> float:
    """Submit jobs, each after the answer to the one before; return the seconds it took."""
    start = time.perf_counter()
    for number in range(count):
        key, command = _job(commands, number)
        _check(type(commands.send(command, key=key, timeout_s=READY_S).answer))
    return time.perf_counter() - start


def _sent_in_batches(commands: Commands, rounds: int) -> float:
    """Submit batches of jobs made before, each after the answers to the one before; return the seconds it took."""
    batches = [[_job(commands, first * MAX_BATCH + number) for number in range(MAX_BATCH)] for first in range(rounds)]
    start = time.perf_counter()
    for keyed in batches:
        for answered in commands.send_all(keyed, timeout_s=READY_S):
            _check(type(answered.answer))
    return time.perf_counter() - start


def _check(answer: type) -> None:
    if answer is not JobAdmitted:
        raise NoScheduler(f"a job was answered by {answer.__name__}, not admitted: nothing was measured")
