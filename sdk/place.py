"""Where a run's attempt keeps its checkpoints and spools: told by gangline's launcher, or claimed in a local folder.

Outside gangline there is nobody to count attempts, and processes of one launch may start before they can talk to each
other. So whoever comes first makes the folder `attempt-<last + 1>` with the launch's identity in it, in one atomic
rename; the others of the launch find it by that identity.
"""

import os
import re
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from gangline.schemas import launch
from gangline.schemas.errors import GanglineError, UsageError
from gangline.schemas.manifest import attempt_folder_name, attempt_of

MAX_CLAIM_TRIES = 1000
"""Each failed try means that another process of the same run claimed an attempt in that instant."""

MAX_ATTEMPTS_COMPARED = 64
"""Only among the newest attempts can one be of the launch that is going on."""

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_IDENTITY_FILE = "launch.json"
_LAUNCH_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
)


class PlaceError(GanglineError):
    """The folder for checkpoints and metrics cannot be used."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where this attempt keeps what it writes; `by_gangline` tells whether gangline launched it."""

    run: str
    attempt: int
    checkpoint_dir: Path
    spool_dir: Path
    by_gangline: bool


def launched_place(environ: Mapping[str, str]) -> Place | None:
    """Give the place that gangline's launcher set; None outside gangline. Raises `UsageError`."""
    run = environ.get(launch.JOB_ID)
    if not run:
        return None
    needed = (launch.ATTEMPT, launch.CHECKPOINT_DIR, launch.SPOOL_DIR)
    if missing := [name for name in needed if not environ.get(name)]:
        raise UsageError(f"{launch.JOB_ID} is set but {', '.join(missing)} not: unset it to run outside gangline")
    return Place(
        run=run,
        attempt=integer_variable(environ, launch.ATTEMPT, default=1, least=1),
        checkpoint_dir=Path(environ[launch.CHECKPOINT_DIR]),
        spool_dir=Path(environ[launch.SPOOL_DIR]),
        by_gangline=True,
    )


def integer_variable(environ: Mapping[str, str], name: str, *, default: int, least: int) -> int:
    """Read a whole number from the environment. Raises `UsageError`."""
    value = environ.get(name, "")
    if not value:
        return default
    if not value.isdecimal() or int(value) < least:
        raise UsageError(f"{name} is {value!r}, but must be a whole number of at least {least}")
    return int(value)


def run_name(name: str | None, environ: Mapping[str, str]) -> str:
    """Choose the name of a run outside gangline: what was given, GANGLINE_RUN, or the script's. Raises `UsageError`."""
    chosen = name or environ.get(launch.RUN_NAME)
    if not chosen:
        stem = Path(sys.argv[0]).stem if sys.argv else ""
        chosen = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")
        if not chosen:
            raise UsageError("the run has no name, since there is no script: call gangline.init(name=...)")
    if not _RUN_NAME.fullmatch(chosen):
        raise UsageError(
            f"{chosen!r} cannot name a run: use a letter or digit, then up to 127 letters, digits, '.', '_', '-'",
        )
    return chosen


def claim_place(run_dir: Path, environ: Mapping[str, str]) -> Place:
    """Claim the next attempt of the run in `run_dir`, or join the one that this launch already claimed.

    Processes on several nodes, which have no parent in common, know their launch by MASTER_ADDR, MASTER_PORT and what
    torchrun or Slurm say of it. Raises `PlaceError`.
    """
    identity = msgspec.json.encode(_launch_identity(environ))
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        for _ in range(MAX_CLAIM_TRIES):
            attempts = attempts_of(run_dir)
            for attempt in attempts[:MAX_ATTEMPTS_COMPARED]:
                if _identity_in(run_dir / attempt_folder_name(attempt)) == identity:
                    return _local_place(run_dir, attempt)
            attempt = attempts[0] + 1 if attempts else 1
            if _make_attempt(run_dir, attempt, identity):
                return _local_place(run_dir, attempt)
    except OSError as error:
        raise PlaceError(
            f"cannot use {run_dir}: {error.strerror}; make it writable, or choose gangline.init(folder=...)",
        ) from error
    raise PlaceError(f"{run_dir}: others claimed an attempt {MAX_CLAIM_TRIES} times first; give this run its own name")


def attempts_of(run_dir: Path) -> list[int]:
    """Give a run's attempts that have a folder, newest first. Raises `OSError`."""
    if not run_dir.is_dir():
        return []
    found = [attempt_of(entry.name) for entry in run_dir.iterdir()]
    return sorted((attempt for attempt in found if attempt is not None), reverse=True)


def _local_place(run_dir: Path, attempt: int) -> Place:
    folder = run_dir / attempt_folder_name(attempt)
    spool_dir = folder / "spool"
    spool_dir.mkdir(exist_ok=True)
    return Place(run=run_dir.name, attempt=attempt, checkpoint_dir=folder, spool_dir=spool_dir, by_gangline=False)


def _identity_in(folder: Path) -> bytes | None:
    try:
        return (folder / _IDENTITY_FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _make_attempt(run_dir: Path, attempt: int, identity: bytes) -> bool:
    claim = run_dir / f".claim-{uuid.uuid4().hex}"
    claim.mkdir()
    try:
        (claim / _IDENTITY_FILE).write_bytes(identity)
        claim.rename(run_dir / attempt_folder_name(attempt))
    except OSError:
        shutil.rmtree(claim, ignore_errors=True)
        if (run_dir / attempt_folder_name(attempt)).exists():
            return False
        raise
    return True


def _launch_identity(environ: Mapping[str, str]) -> dict[str, str]:
    world_size = environ.get("WORLD_SIZE") or "1"
    if world_size == "1":
        return {"process": _process(os.getpid())}
    identity = {name: environ[name] for name in _LAUNCH_VARIABLES if name in environ}
    if environ.get("LOCAL_WORLD_SIZE") == world_size:
        identity["process"] = _process(os.getppid())  # torchrun's, which all ranks have in common
    return identity


def _process(pid: int) -> str:
    """Name a process for all time: pids come again, a pid with its start time within a boot does not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{boot}:{pid}:{fields[19]}"  # field 22 of stat, proc_pid_stat(5)
    except OSError:
        return f"{pid}"


def rank_now(environ: Mapping[str, str]) -> int:
    """Give this process's rank: torch.distributed's if it is initialised, else RANK, else 0. Raises `UsageError`."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return cast("int", distributed.get_rank())
    return integer_variable(environ, "RANK", default=0, least=0)
