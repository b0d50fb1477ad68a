"""The folder of one attempt on this node: the plan, the shim's lock and records, the ranks' output and work.

    plan.json      what the shim is to start; written last before it is started, so without it nothing ever ran
    lock           locked while the shim lives
    shim.jsonl     what the shim did
    shim.err       what it said should it break
    stop.json      tells it to stop
    ending.json    tells the ranks that they will be stopped, and when (GANGLINE_ENDING_FILE)
    failed.json    why the agent could not launch the share
    reported       the log has the share's last fact; the agent has nothing to do here any more
    uploaded/      names the checkpoints that the log has
    rank-R.out .err  the ranks' output
    spool/         GANGLINE_SPOOL_DIR
    work/          the job's code, and the ranks' working directory

What the agent reports follows from these files, so its facts survive its own death while the log is away.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from gangline.agents import shim
from gangline.events.types import Blame, Value
from gangline.schemas.manifest import sync_folder, write_durably

SHIM_SOURCE = Path(shim.__file__)

_log = logging.getLogger(__name__)


class AttemptKey(NamedTuple):
    """Names an attempt."""

    job_id: str
    attempt: int

    @property
    def folder_name(self) -> str:
        """The name of its run folder."""
        return f"{self.job_id}-{self.attempt}"


def key_of(folder_name: str) -> AttemptKey | None:
    """Return the attempt that a run folder of this name belongs to, or None."""
    job_id, _, attempt = folder_name.rpartition("-")
    return AttemptKey(job_id, int(attempt)) if job_id and attempt.isdigit() else None


class PlannedRank(Value, frozen=True, kw_only=True):
    """A rank to start: `program` is the file to execute as `argv`."""

    rank: int
    program: str
    argv: tuple[str, ...]
    env: dict[str, str]
    role: str = ""


class Plan(Value, frozen=True, kw_only=True):
    """Shares to start. `checkpoints` is the attempt's checkpoint folder where rank 0 runs here, else None.

    `idle_timeout_us` is that of an interactive job, `gpus` are the devices that it uses, if they are hardware. In the
    folder `pace` the agents of the gang tell each other how fast their ranks are.
    """

    job_id: str
    attempt: int
    token: str
    cause: str | None
    grace_us: int
    directory: str
    checkpoints: str | None
    ranks: tuple[PlannedRank, ...]
    idle_timeout_us: int | None = None
    gpus: tuple[int, ...] = ()
    world_size: int = 0
    pace: str | None = None


class ShimRecord(Value, frozen=True, kw_only=True):
    """A line of shim.jsonl; which fields it has depends on `event`."""

    event: Literal["started", "exited", "failed", "gone"]
    at_us: int
    pid: int = 0
    rank: int = -1
    exit_code: int = 0
    reason: str = ""
    retryable: bool = False


class Failure(Value, frozen=True, kw_only=True):
    """Why a share could not be launched."""

    reason: str
    retryable: bool
    at_us: int
    blame: Blame = "neither"


class RunFolder:
    """Reads and writes an attempt's folder. All methods raise OSError if the file system fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records_read = 0

    @property
    def work(self) -> Path:
        """The ranks' working directory."""
        return self.path / "work"

    @property
    def spool(self) -> Path:
        """The ranks' spool folder."""
        return self.path / "spool"

    @property
    def ending(self) -> Path:
        """GANGLINE_ENDING_FILE."""
        return self.path / "ending.json"

    def make_afresh(self) -> None:
        """Make the folder, without what an interrupted preparation may have left; nothing has run there."""
        if self.path.exists():
            shutil.rmtree(self.path)
        self.spool.mkdir(parents=True)

    def plan(self) -> Plan | None:
        """Return the plan, or None if the share was never started."""
        return _read(self.path / shim.PLAN_FILE, Plan)

    def failure(self) -> Failure | None:
        """Return why the agent could not launch the share, if so."""
        return _read(self.path / "failed.json", Failure)

    def fail(self, failure: Failure) -> None:
        """Note durably why the share could not be launched."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_durably(self.path / "failed.json", msgspec.json.encode(failure))

    @property
    def reported(self) -> bool:
        """Whether the log has the last fact about this share."""
        return (self.path / "reported").exists()

    def set_reported(self) -> None:
        """Note that the log has the last fact about this share. If this is lost it is reported again, which is fine."""
        if self.path.exists():  # what was never launched has no folder
            (self.path / "reported").touch()

    def uploaded(self) -> set[str]:
        """Return the manifests' SHA-256 of the checkpoints that the log has."""
        try:
            return {path.name for path in (self.path / "uploaded").iterdir()}
        except FileNotFoundError:
            return set()

    def set_uploaded(self, manifest_sha256: str) -> None:
        """Note that the log has this checkpoint, so that it need not be verified again."""
        (self.path / "uploaded").mkdir(exist_ok=True)
        (self.path / "uploaded" / manifest_sha256).touch()

    def start(self, plan: Plan) -> subprocess.Popen[bytes]:
        """Store the plan and start the shim, which holds the lock from before it exists."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_private(self.path / shim.PLAN_FILE, msgspec.json.encode(plan))
            with (self.path / "shim.err").open("wb") as errors:
                return subprocess.Popen(
                    [sys.executable, "-I", "-S", str(SHIM_SOURCE), str(self.path), str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    cwd="/",
                    pass_fds=(lock,),
                    start_new_session=True,
                )
        finally:
            os.close(lock)

    def shim_lives(self) -> bool:
        """Whether the shim holds its lock. The lock, not a process id, which may be another's by now."""
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def new_records(self) -> list[ShimRecord]:
        """Return what the shim has recorded since the last call."""
        try:
            with (self.path / shim.RECORDS_FILE).open("rb") as stream:
                stream.seek(self._records_read)
                data = stream.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._records_read += len(whole)
        records: list[ShimRecord] = []
        for line in whole.splitlines():
            try:
                records.append(msgspec.json.decode(line, type=ShimRecord))
            except msgspec.MsgspecError as error:  # then the rank that it was about counts as lost
                _log.warning("%s holds %r, which is no record: %s", self.path / shim.RECORDS_FILE, line[:80], error)
        return records

    def shim_errors(self) -> str:
        """Return what the shim said; nothing if the job has deleted that."""
        try:
            return (self.path / "shim.err").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def order_stop(self, grace_us: int) -> None:
        """Tell the shim to stop the ranks within `grace_us`, once for each grace."""
        path = self.path / shim.STOP_FILE
        order = msgspec.json.encode({"grace_us": grace_us})
        if not path.exists() or path.read_bytes() != order:
            write_durably(path, order)

    def terminate_shim(self, pid: int) -> None:
        """Send the shim SIGTERM, which stops the ranks within the job's own grace; `pid` is what it recorded."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if self.shim_lives():  # so the process that was opened before is the shim, and none that has its id
                    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            finally:
                os.close(descriptor)


_T = TypeVar("_T")


def _read(path: Path, type_: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except FileNotFoundError:
        return None


def _write_private(path: Path, data: bytes) -> None:
    """Write a file durably that only its owner reads: a plan holds the job's environment."""
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(path)
    sync_folder(path.parent)
