"""What a launcher tells a rank through its environment, and what the rank answers with files.

The agent's launcher sets these variables beside those of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...).
"""

from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import msgspec

from gangline.schemas.errors import UsageError
from gangline.schemas.manifest import write_durably

JOB_ID = "GANGLINE_JOB_ID"
"""The job, which is the run's id; set exactly where gangline launched the process."""

ATTEMPT = "GANGLINE_ATTEMPT"
"""The attempt, counted from 1."""

CHECKPOINT_DIR = "GANGLINE_CHECKPOINT_DIR"
"""The folder of this attempt's checkpoints, `<dir>/<job>/attempt-<a>`; the SDK makes it if it is absent."""

RESUME = "GANGLINE_RESUME"
"""The committed checkpoints to start from, newest first: `encode_resume`; empty or absent at a first attempt."""

SPOOL_DIR = "GANGLINE_SPOOL_DIR"
"""An existing folder on this node for this attempt's metric spools and the rank's reports."""

ARRAY_INDEX = "GANGLINE_ARRAY_INDEX"
"""Which job of its array this is, counted from 0; set for the jobs of arrays only."""

ENDING_FILE = "GANGLINE_ENDING_FILE"
"""Where a file appears when the attempt's max_runtime is nearly over: `Ending`, as JSON. Until then there is none."""

RUN_NAME = "GANGLINE_RUN"
"""Names the run where gangline did not launch the process."""

MAX_RESUME_OFFERS = 64
"""An environment variable holds at most 128 KiB on Linux; a fall-back older than this helps nobody."""

_Step = Annotated[int, msgspec.Meta(ge=0)]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class ResumeOffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A committed checkpoint that an attempt may start from."""

    step: _Step
    uri: Annotated[str, msgspec.Meta(min_length=1)]
    manifest_sha256: _Sha256


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """That the attempt will get SIGTERM at this time, microseconds since 1970 by the scheduler's clock."""

    reason: str
    ends_at_us: int


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's report that an offered checkpoint is not what was committed."""

    uri: str
    manifest_sha256: _Sha256
    step: _Step
    reason: str

    @property
    def file_name(self) -> str:
        """The report's name in the spool folder."""
        return f"rejected-{self.step}-{self.manifest_sha256[:8]}.json"


def encode_resume(offers: list[ResumeOffer]) -> str:
    """Give the value of GANGLINE_RESUME; keeps the newest `MAX_RESUME_OFFERS`."""
    return msgspec.json.encode(offers[:MAX_RESUME_OFFERS]).decode()


def decode_resume(value: str) -> list[ResumeOffer]:
    """Read the value of GANGLINE_RESUME, newest first. Raises `UsageError`."""
    if not value.strip():
        return []
    try:
        return msgspec.json.decode(value, type=list[ResumeOffer])
    except msgspec.MsgspecError as error:
        raise UsageError(f"{RESUME} is malformed ({error}): it is set by gangline's launcher only") from error


def write_ending(path: Path, ending: Ending) -> None:
    """Tell the ranks when their attempt will be stopped; it is whole or absent. Raises `OSError`."""
    write_durably(path, msgspec.json.encode(ending))


def read_ending(path: Path) -> Ending | None:
    """Read when the attempt will be stopped; None until that is near. Raises `msgspec.MsgspecError`, `OSError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ending)
    except FileNotFoundError:
        return None


def write_rejection(spool_dir: Path, rejection: Rejection) -> Path:
    """Leave a report for the agent in the spool folder; the same rejection again changes nothing. Raises `OSError`."""
    path = spool_dir / rejection.file_name
    write_durably(path, msgspec.json.encode(rejection))
    return path


def read_rejections(spool_dir: Path) -> list[Rejection]:
    """Read the reports in a spool folder, by name. Raises `msgspec.MsgspecError` on a file that is none."""
    return [
        msgspec.json.decode(path.read_bytes(), type=Rejection) for path in sorted(spool_dir.glob("rejected-*.json"))
    ]


def folder_of_uri(uri: str) -> Path:
    """Give the local folder that a `file:///` URI names. Raises `UsageError` on any other."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise UsageError(f"cannot read a checkpoint at {uri!r}: this version reads file:///absolute/path only")
    return Path(unquote(parts.path))
