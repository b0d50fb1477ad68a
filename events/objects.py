"""The object store: what is too large for a record, named by URI and SHA-256, written once, verified when read.

Two backends behind one protocol: a folder (`file:///path`), and a bucket (`s3://bucket/prefix`, through boto3, which
takes credentials and the endpoint from its usual environment, AWS_ENDPOINT_URL among it).
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast
from urllib.parse import unquote, urlsplit

from gangline.schemas.errors import GanglineError, UsageError
from gangline.schemas.manifest import sync_folder

_BLOCK_BYTES = 1024 * 1024


class ObjectError(GanglineError):
    """The object store could not do what was asked."""


class ObjectMissing(ObjectError):
    """There is no such object."""

    exit_code = 3


class ObjectDamaged(ObjectError):
    """An object is not what its SHA-256 says, or larger than it may be."""


class ObjectStoreUnavailable(ObjectError):
    """The store cannot be reached, or does not allow it; the text says what to mend."""


class StoredObject(NamedTuple):
    """Where an object lies and what it is."""

    uri: str
    sha256: str
    size_bytes: int


class ObjectStore(Protocol):
    """Keeps objects under their content's SHA-256."""

    def put(self, source: bytes | Path) -> StoredObject:
        """Store bytes, or a file's, durably; what is there already is not written again.

        Raises ObjectStoreUnavailable; OSError if the source cannot be read.
        """


def open_store(url: str | Path) -> ObjectStore:
    """Return the store at `file:///path`, a plain path, or `s3://bucket/prefix`. Raises UsageError on any other."""
    if isinstance(url, Path):
        return FileStore(url)
    parts = urlsplit(url)
    if parts.scheme == "s3" and parts.netloc:
        return S3Store(parts.netloc, parts.path.strip("/"))
    if not parts.scheme:
        return FileStore(Path(url))
    return FileStore(_file_of(url))


def get(uri: str, sha256: str, *, limit_bytes: int) -> bytes:
    """Return an object's bytes, verified.

    Raises ObjectMissing, ObjectDamaged (wrong content, or more than `limit_bytes`), ObjectStoreUnavailable, UsageError
    for a URI that no backend knows.
    """
    data = _get_s3(uri, limit_bytes) if uri.startswith("s3://") else _get_file(uri, limit_bytes)
    if len(data) > limit_bytes:
        raise ObjectDamaged(f"{uri} is larger than {limit_bytes:,} bytes, the limit for what it is to be")
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ObjectDamaged(f"{uri} has SHA-256 {found}, but was recorded with {sha256}: store it again")
    return data


class FileStore:
    """Objects in a folder, `<root>/ab/<sha256>`: whole or absent, whatever dies meanwhile."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def put(self, source: bytes | Path) -> StoredObject:
        """Store bytes or a file; see the protocol."""
        sha256, size_bytes = _measure(source)
        path = self._root / sha256[:2] / sha256
        stored = StoredObject(path.as_uri(), sha256, size_bytes)
        try:
            if path.exists() and _measure(path)[0] == sha256:
                return stored
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, source, sha256)
        except OSError as error:
            raise ObjectStoreUnavailable(
                f"cannot store {size_bytes:,} bytes in {self._root}: {error.strerror}; make the folder writable, free "
                "space, or choose another"
            ) from error
        return stored

    def _write(self, path: Path, source: bytes | Path, sha256: str) -> None:
        digest = hashlib.sha256()
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for block in _blocks(source):
                    digest.update(block)
                    stream.write(block)
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            if digest.hexdigest() != sha256:
                raise ObjectDamaged(f"{source!s} changed while it was stored: try again")
            Path(temporary).rename(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
        sync_folder(self._root)


class S3Store:
    """Objects in a bucket, `<prefix>/<sha256>`; S3 itself verifies what arrives against the SHA-256."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = prefix

    def put(self, source: bytes | Path) -> StoredObject:
        """Store bytes or a file; see the protocol."""
        sha256, size_bytes = _measure(source)
        key = f"{self._prefix}/{sha256}" if self._prefix else sha256
        stored = StoredObject(f"s3://{self._bucket}/{key}", sha256, size_bytes)
        body: bytes | IO[bytes] = source if isinstance(source, bytes) else source.open("rb")
        try:
            _s3("store", stored.uri, "put_object", Bucket=self._bucket, Key=key, Body=body, ChecksumAlgorithm="SHA256")
        finally:
            if not isinstance(body, bytes):
                body.close()
        return stored


def _blocks(source: bytes | Path) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _measure(source: bytes | Path) -> tuple[str, int]:
    digest = hashlib.sha256()
    size_bytes = 0
    for block in _blocks(source):
        digest.update(block)
        size_bytes += len(block)
    return digest.hexdigest(), size_bytes


def _file_of(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise UsageError(f"{uri!r} names no object store: use file:///absolute/path or s3://bucket/prefix")
    return Path(unquote(parts.path))


def _get_file(uri: str, limit_bytes: int) -> bytes:
    path = _file_of(uri)
    try:
        with path.open("rb") as stream:
            return stream.read(limit_bytes + 1)
    except FileNotFoundError as error:
        raise ObjectMissing(f"{path} does not exist: it was deleted, or its folder is not mounted here") from error
    except OSError as error:
        raise ObjectStoreUnavailable(f"{path} cannot be read: {error.strerror}") from error


def _get_s3(uri: str, limit_bytes: int) -> bytes:
    parts = urlsplit(uri)
    answer = _s3("read", uri, "get_object", Bucket=parts.netloc, Key=parts.path.removeprefix("/"))
    return cast("bytes", answer["Body"].read(limit_bytes + 1))


def _s3(doing: str, uri: str, operation: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - boto3 is untyped
    import boto3  # noqa: PLC0415 - it takes 0.3 s to import, and most deployments of one machine never need it
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    try:
        return cast("dict[str, Any]", getattr(boto3.client("s3"), operation)(**arguments))
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in {"NoSuchKey", "404"}:
            raise ObjectMissing(f"{uri} does not exist") from error
        raise ObjectStoreUnavailable(f"cannot {doing} {uri}: {error}") from error
    except BotoCoreError as error:
        raise ObjectStoreUnavailable(f"cannot {doing} {uri}: {error}; see AWS_ENDPOINT_URL and credentials") from error
