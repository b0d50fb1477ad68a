"""The metric spool: an append-only file per run, attempt and rank, written by the SDK and read by the agent.

Each record is a frame: length, CRC-32 of the payload, CRC-32 of these two (little-endian, 4 bytes each), then the
payload as msgpack. The frame's head has its own checksum, so that a damaged length is not mistaken for the unfinished
record that a crash leaves at the end. The first record names the run, attempt and rank; each other one is a `Point`.

A record is one `write` to the page cache: a SIGKILL right after it loses nothing, a failing machine may lose what the
kernel had not stored yet. (A memory map would do the same, but answers a full disk with SIGBUS.)
"""

import fcntl
import os
import struct
import zlib
from pathlib import Path
from threading import Lock
from typing import Annotated, Self

import msgspec

from gangline.schemas.errors import GanglineError

SPOOL_FORMAT = 1
"""The newest format that this code reads, and the one it writes."""

MAX_POINT_BYTES = 256_000
"""The largest record: some ten thousand metrics at once. What is larger is data, not a metric."""

READ_BYTES = 4 * 1024 * 1024
"""How much of a spool one call reads, unless told otherwise: some 100,000 points."""

OWN_TIME = "gangline.own_s"
"""The metric of a step that says for how many seconds the rank computed, without waiting for others."""

_HEAD = struct.Struct("<III")
_CHECKED = struct.Struct("<II")


class SpoolError(GanglineError):
    """A spool cannot be written or read as asked."""


class SpoolUnwritable(SpoolError):
    """The spool cannot be opened or written: no permission, no space, or another process writes it."""


class SpoolTooNew(SpoolError):
    """The spool was written by a newer gangline than this one."""


class NotASpool(SpoolError):
    """The file does not begin as a spool does."""


class SpoolHead(msgspec.Struct, frozen=True, kw_only=True, tag="head"):
    """The first record: whose points these are."""

    run: str
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    rank: Annotated[int, msgspec.Meta(ge=0)]
    created_at_us: int
    format: int = SPOOL_FORMAT


class Point(msgspec.Struct, frozen=True, kw_only=True, tag="point"):
    """What one `log()` call gave: values by metric at a step. Values may be NaN or infinite; steps come in any order.

    A spool that an attempt opens again may hold a (metric, step) twice; the later one counts.
    """

    at_us: int
    step: Annotated[int, msgspec.Meta(ge=0)]
    values: dict[str, float]


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a spool that hold no record although readable ones follow; their points are lost."""

    offset: int
    size_bytes: int
    reason: str


class SpoolBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `read_spool` found.

    Reading goes on at `next_offset`. `unfinished_bytes` counts the bytes after it that are no whole record (yet):
    one that is being written, or the torn end that a crash left.
    """

    head: SpoolHead
    points: tuple[Point, ...]
    damage: tuple[Damage, ...]
    next_offset: int
    unfinished_bytes: int


_decoder = msgspec.msgpack.Decoder(SpoolHead | Point)
_encoder = msgspec.msgpack.Encoder()


def spool_path(folder: Path, rank: int) -> Path:
    """Give the place of a rank's spool in the attempt's spool folder."""
    return folder / f"metrics-rank-{rank}.spool"


class SpoolWriter:
    """Appends points to one spool; threads may share it, processes may not.

    Opening a spool that exists goes on behind its last whole record and drops a torn end. Raises `SpoolUnwritable`,
    `NotASpool`, or `SpoolError` where the file belongs to another run, attempt or rank.
    """

    def __init__(self, path: Path, head: SpoolHead) -> None:
        self.path = path
        self._lock = Lock()
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise SpoolUnwritable(
                f"cannot write metrics to {path}: {error.strerror}; make the folder writable or choose another",
            ) from error
        try:
            self._open(head)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _open(self, head: SpoolHead) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SpoolUnwritable(
                f"{self.path} is being written by another process: two processes log as rank {head.rank} of "
                f"run {head.run!r}; set RANK, or give each run its own name",
            ) from error
        size_bytes = os.fstat(self._descriptor).st_size
        self._end = 0
        if size_bytes:
            self._end = self._end_of_whole_records(head)
            if self._end < size_bytes:
                os.ftruncate(self._descriptor, self._end)
        if self._end == 0:
            self._append(_encoder.encode(head))

    def _end_of_whole_records(self, head: SpoolHead) -> int:
        offset = 0
        while True:
            try:
                batch = read_spool(self.path, offset)
            except NotASpool:
                if offset == 0 and os.fstat(self._descriptor).st_size < _HEAD.size + len(_encoder.encode(head)):
                    return 0  # Its writer died in the first record; nothing was logged yet.
                raise
            found = batch.head
            if (found.run, found.attempt, found.rank) != (head.run, head.attempt, head.rank):
                raise SpoolError(
                    f"{self.path} belongs to rank {found.rank} of attempt {found.attempt} of run {found.run!r}, "
                    f"not to rank {head.rank} of attempt {head.attempt} of run {head.run!r}",
                )
            if batch.next_offset == offset:
                return offset
            offset = batch.next_offset

    def append(self, point: Point) -> None:
        """Append a point; once this returns, the death of the process cannot lose it.

        Raises `SpoolUnwritable` with the spool unchanged if there is no space, `SpoolError` if it is too large.
        """
        self._append(_encoder.encode(point))

    def _append(self, payload: bytes) -> None:
        if len(payload) > MAX_POINT_BYTES:
            raise SpoolError(f"{len(payload)} bytes in one log() call, but {MAX_POINT_BYTES} is the limit: log less")
        checked = _CHECKED.pack(len(payload), zlib.crc32(payload))
        frame = b"".join((checked, zlib.crc32(checked).to_bytes(4, "little"), payload))
        with self._lock:
            if self._descriptor < 0:
                raise SpoolError(f"{self.path} is closed: log before finish()")
            try:
                written = os.write(self._descriptor, frame)
                while written < len(frame):
                    written += os.write(self._descriptor, frame[written:])
            except OSError as error:
                os.ftruncate(self._descriptor, self._end)  # or the half record would be damage in the middle
                raise SpoolUnwritable(f"cannot write metrics to {self.path}: {error.strerror}; free space") from error
            self._end += written

    def close(self) -> None:
        """Store what was appended on the disk and close the file; a second call changes nothing."""
        with self._lock:
            if self._descriptor >= 0:
                try:
                    os.fsync(self._descriptor)
                finally:
                    os.close(self._descriptor)
                    self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_spool(path: Path, offset: int = 0, *, limit_bytes: int = READ_BYTES) -> SpoolBatch:
    """Read whole records from `offset` (0, or a `next_offset`) on; safe while the spool is being written.

    Reads about `limit_bytes`; at the end of the spool `next_offset` stays where it was. Damaged bytes are skipped and
    reported, so what is behind them is not lost. Raises `NotASpool`, `SpoolTooNew`, or `OSError`.
    """
    limit_bytes = max(limit_bytes, 2 * (_HEAD.size + MAX_POINT_BYTES))  # or a full-size record might never fit
    with path.open("rb") as stream:
        head, first_end = _read_head(path, stream.read(_HEAD.size + MAX_POINT_BYTES))
        offset = max(offset, first_end)
        stream.seek(offset)
        data = stream.read(limit_bytes)
        at_end = not stream.read(1)
    points: list[Point] = []
    damage: list[Damage] = []
    position = 0
    while position < len(data):
        end, found = _frame(data, position)
        if isinstance(found, Point):
            points.append(found)
            position = end
            continue
        reason = "a second head" if found is not None else "a checksum does not match"
        behind = _next_frame(data, position + 1) if end or found is not None else None
        if behind is None:
            break
        damage.append(Damage(offset=offset + position, size_bytes=behind - position, reason=reason))
        position = behind
    unfinished = len(data) - position
    if not at_end and unfinished > _HEAD.size + MAX_POINT_BYTES:
        # No record is that long, and none begins here: all of it but what may be a record's beginning is damage.
        skipped = unfinished - (_HEAD.size + MAX_POINT_BYTES)
        damage.append(Damage(offset=offset + position, size_bytes=skipped, reason="no record begins here"))
        position += skipped
    return SpoolBatch(
        head=head,
        points=tuple(points),
        damage=tuple(damage),
        next_offset=offset + position,
        unfinished_bytes=len(data) - position if at_end else 0,
    )


def _read_head(path: Path, data: bytes) -> tuple[SpoolHead, int]:
    end, found = _frame(data, 0)
    if not isinstance(found, SpoolHead):
        raise NotASpool(f"{path} does not begin with a spool's head")
    if found.format > SPOOL_FORMAT:
        raise SpoolTooNew(f"{path} has format {found.format}, this gangline reads up to {SPOOL_FORMAT}: upgrade it")
    return found, end


def _frame(data: bytes, position: int) -> tuple[int, SpoolHead | Point | None]:
    """Give a frame's end and record; (0, None) where the data ends before it does, (end, None) where it is damaged."""
    if len(data) - position < _HEAD.size:
        return 0, None
    length, payload_crc, head_crc = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    if zlib.crc32(data[position : position + _CHECKED.size]) != head_crc or length > MAX_POINT_BYTES:
        return start, None
    payload = data[start : start + length]
    if len(payload) < length:
        return 0, None
    if zlib.crc32(payload) != payload_crc:
        return start + length, None
    try:
        return start + length, _decoder.decode(payload)
    except msgspec.MsgspecError:
        return start + length, None


def _next_frame(data: bytes, position: int) -> int | None:
    """Find where the next whole record begins; byte by byte, since damage is rare and lengths cannot be trusted."""
    for candidate in range(position, len(data) - _HEAD.size + 1):
        if _frame(data, candidate)[1] is not None:
            return candidate
    return None
