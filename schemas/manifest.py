"""The manifest of a checkpoint: what it consists of, and the check that all of it is there, unchanged.

A checkpoint is a folder `<dir>/<run>/attempt-<a>/step-<n>` of files, and `manifest.json`, which is written last: a
folder without one is a save that did not finish. The manifest's own SHA-256 names the checkpoint on the log.
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec

from gangline.schemas.errors import GanglineError

MANIFEST_NAME = "manifest.json"
"""The file beside the shards; it exists only when all that it lists is stored."""

MANIFEST_FORMAT = 1
"""The newest format that this code reads, and the one it writes. Within a format only optional keys are added."""

MAX_MANIFEST_BYTES = 256 * 1024 * 1024
"""A million files of a long path fit four times; anything larger is no manifest."""

_HASH_BLOCK_BYTES = 1024 * 1024
_ATTEMPT_FOLDER = re.compile(r"attempt-([1-9][0-9]{0,17})")
_FAULTS_OF_THE_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG})

_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class ManifestError(GanglineError):
    """A manifest cannot be read, or is none."""


class ManifestTooNew(ManifestError):
    """The manifest was written by a newer gangline than this one."""


class CheckpointDamaged(GanglineError):
    """What the folder holds is not what the checkpoint's manifest says; `path` names the first such file."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class CheckpointFileMissing(CheckpointDamaged):
    """A file of the checkpoint is not there, or cannot be read to its end."""


class CheckpointFileLengthWrong(CheckpointDamaged):
    """A file of the checkpoint is shorter or longer than it was when it was saved."""


class CheckpointFileHashWrong(CheckpointDamaged):
    """A file of the checkpoint has its length, but not its content."""


class CheckpointPathEscapes(CheckpointDamaged):
    """The manifest names something outside its folder, something twice, or itself."""


class ManifestHashWrong(CheckpointDamaged):
    """The manifest is not the one that the checkpoint was recorded with."""


class CheckpointFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One file of a checkpoint; `path` is relative to the folder, with forward slashes."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    size_bytes: _Count
    sha256: _Sha256


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint consists of and where training stood when it was saved.

    `data_position` is whatever JSON object the training script gave; `code_pin` and `data_pins` name the code bundle
    and the dataset versions where they are known.
    """

    run: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    attempt: _AtLeastOne
    step: _Count
    world_size: _AtLeastOne
    files: tuple[CheckpointFile, ...]
    data_position: dict[str, Any] | None = None
    code_pin: str | None = None
    data_pins: tuple[str, ...] | None = None
    created_at_us: _Count
    gangline_version: str
    format: int = MANIFEST_FORMAT

    @property
    def size_bytes(self) -> int:
        """The length of all files together, the manifest itself left out."""
        return sum(file.size_bytes for file in self.files)


class _FormatOnly(msgspec.Struct):
    format: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Give the bytes of `manifest.json`: the same manifest always gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1) + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest's bytes.

    Raises `ManifestTooNew` if a newer gangline wrote it, `ManifestError` if it is not a manifest.
    """
    try:
        newest = msgspec.json.decode(data, type=_FormatOnly).format
        if newest > MANIFEST_FORMAT:
            raise ManifestTooNew(
                f"the manifest has format {newest}, this gangline reads up to {MANIFEST_FORMAT}: upgrade gangline",
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"not a checkpoint manifest: {error}") from error


def manifest_sha256(folder: Path) -> str:
    """Give the SHA-256 (hexadecimal) by which the checkpoint in `folder` is recorded."""
    return hashlib.sha256(_manifest_bytes(folder)).hexdigest()


def read_manifest(folder: Path, *, sha256: str | None = None) -> Manifest:
    """Read the manifest of the checkpoint in `folder`; with `sha256`, only if that is its hash.

    Raises `CheckpointFileMissing`, `ManifestHashWrong`, `ManifestTooNew` or `ManifestError`.
    """
    data = _manifest_bytes(folder)
    _check_manifest_hash(folder, data, sha256)
    try:
        return decode_manifest(data)
    except ManifestError as error:
        raise type(error)(f"{folder / MANIFEST_NAME}: {error}") from error


def find_manifests(attempt_folder: Path) -> list[Path]:
    """Give the finished checkpoints' folders in an attempt's folder, in no order; none if there is no such folder."""
    return [manifest.parent for manifest in attempt_folder.glob(f"step-*/{MANIFEST_NAME}")]


def attempt_folder_name(attempt: int) -> str:
    """Name an attempt's folder."""
    return f"attempt-{attempt}"


def attempt_of(folder_name: str) -> int | None:
    """Give the attempt whose folder has this name; None if it is no attempt's."""
    match = _ATTEMPT_FOLDER.fullmatch(folder_name)
    return int(match[1]) if match else None


def verify_checkpoint(
    folder: Path,
    manifest: Manifest,
    *,
    sha256: str | None = None,
    files: Iterable[CheckpointFile] | None = None,
) -> None:
    """Check that `folder` holds every file of `manifest`, unchanged; reads them all.

    With `sha256`, `manifest.json` itself must have that hash. With `files`, only these of the manifest's are read (so
    that ranks can share the work); all paths are checked in any case.

    Raises the subclass of `CheckpointDamaged` that names the first fault. Other failures to read (no permission, a
    stale mount) are `OSError`: they say nothing about the checkpoint.
    """
    if sha256 is not None:
        _check_manifest_hash(folder, _manifest_bytes(folder), sha256)
    _check_paths(manifest)
    root = folder.resolve()
    for file in manifest.files if files is None else files:
        _verify_file(root, file)


def file_sha256(path: Path) -> tuple[int, str]:
    """Give a file's length in bytes and its SHA-256 (hexadecimal). Raises `OSError`."""
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(_HASH_BLOCK_BYTES):
            digest.update(block)
            size_bytes += len(block)
    return size_bytes, digest.hexdigest()


def _manifest_bytes(folder: Path) -> bytes:
    path = folder / MANIFEST_NAME
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        if error.errno not in _FAULTS_OF_THE_FILE:
            raise
        raise CheckpointFileMissing(f"{path} cannot be read: {error.strerror}", path=MANIFEST_NAME) from error
    if len(data) > MAX_MANIFEST_BYTES:
        raise ManifestError(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes, so it is no manifest")
    return data


def _check_manifest_hash(folder: Path, data: bytes, sha256: str | None) -> None:
    found = hashlib.sha256(data).hexdigest()
    if sha256 is not None and found != sha256:
        raise ManifestHashWrong(
            f"{folder / MANIFEST_NAME} has SHA-256 {found}, but the checkpoint was recorded with {sha256}",
            path=MANIFEST_NAME,
        )


def _check_paths(manifest: Manifest) -> None:
    seen = set()
    for file in manifest.files:
        pure = PurePosixPath(file.path)
        if pure.is_absolute() or ".." in pure.parts or "\0" in file.path or str(pure) in {".", MANIFEST_NAME}:
            raise CheckpointPathEscapes(f"the manifest names {file.path!r}, which is no file of it", path=file.path)
        if pure in seen:
            raise CheckpointPathEscapes(f"the manifest names {file.path!r} twice", path=file.path)
        seen.add(pure)


def _verify_file(root: Path, file: CheckpointFile) -> None:
    path = root / file.path
    try:
        if not path.resolve().is_relative_to(root):
            raise CheckpointPathEscapes(f"{path} is a link that leaves the checkpoint's folder", path=file.path)
        if not path.is_file():
            raise CheckpointFileMissing(f"{path} is missing, or no file", path=file.path)
        size_bytes = path.stat().st_size
        if size_bytes == file.size_bytes:
            size_bytes, found = file_sha256(path)
        else:
            found = ""
    except OSError as error:
        if error.errno not in _FAULTS_OF_THE_FILE:
            raise
        raise CheckpointFileMissing(f"{path} cannot be read: {error.strerror}", path=file.path) from error
    if size_bytes != file.size_bytes:
        raise CheckpointFileLengthWrong(
            f"{path} has {size_bytes} bytes, but was saved with {file.size_bytes}",
            path=file.path,
        )
    if found != file.sha256:
        raise CheckpointFileHashWrong(
            f"{path} has SHA-256 {found}, but was saved with {file.sha256}",
            path=file.path,
        )


def write_durably(path: Path, data: bytes) -> None:
    """Write a file so that it is whole or absent, whatever dies meanwhile: temporary file, fsync, rename, fsync.

    Raises `OSError`, with nothing left of the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
