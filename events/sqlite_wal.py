"""Finds damage in a write-ahead log before SQLite's own recovery silently drops it.

SQLite's recovery stops at the first frame whose checksum is wrong and forgets all behind it, committed or not
(https://sqlite.org/walformat.html). A crash explains a bad frame only within the last transaction: a commit is synced
before the next one begins. So whatever is valid behind the end of a bad transaction means damage.
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gangline.events.log import LogDamaged
from gangline.events.sqlite_errors import damaged

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
FRAMES_AT_ONCE = 2048
"""Frames checked together, 8 MiB of them."""

_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_FORMAT = 3007000


def verify(path: Path) -> None:
    """Raise LogDamaged if the write-ahead log at `path` holds commits that SQLite would drop.

    No other process may have the database open. A missing or empty file is fine.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if size <= HEADER_BYTES:
        return
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        magic, version, page_bytes, _, salt, checksum = struct.unpack(">IIII8s8s", header)
        word = "<u4" if magic == _MAGIC_LITTLE else ">u4"
        start = np.zeros((1, 2), np.uint32)
        computed = _checksums(np.frombuffer(header[:24], word).reshape(1, 6), start)
        if computed.astype(">u4").tobytes() != checksum or magic not in (_MAGIC_LITTLE, _MAGIC_BIG):
            if not any(header) and not any(file.read(FRAME_HEADER_BYTES)):
                return  # allocated, but never written
            raise damaged(path, "its header's checksum is wrong, so SQLite would ignore all its commits")
        if version != _FORMAT:
            raise damaged(path, f"its format is {version}, not {_FORMAT}")
        frames = _read_frames(file, page_bytes, word, salt, checksum)
    _judge(path, frames)


def _checksums(words: "np.ndarray[Any, Any]", start: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Run SQLite's checksum over each row of 32-bit words, from each row of `start`; returns rows of two words."""
    columns = np.ascontiguousarray(words.T.astype(np.uint32))
    first, second = start[:, 0].astype(np.uint32), start[:, 1].astype(np.uint32)
    for even in range(0, len(columns), 2):
        first = first + columns[even] + second
        second = second + columns[even + 1] + first
    return np.stack([first, second], axis=1)


def _read_frames(file: BinaryIO, page_bytes: int, word: str, salt: bytes, checksum: bytes) -> "np.ndarray[Any, Any]":
    """Return a row (page, commit, current salt, valid) for each whole frame of the rest of the file."""
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    before = np.frombuffer(checksum, ">u4").reshape(1, 2)
    rows = [np.zeros((0, 4), np.int64)]
    while True:
        data = file.read(frame_bytes * FRAMES_AT_ONCE)
        count = len(data) // frame_bytes
        if count == 0:
            return np.concatenate(rows)
        raw = np.frombuffer(data, np.uint8, count * frame_bytes).reshape(count, frame_bytes)
        heads = np.ascontiguousarray(raw[:, :FRAME_HEADER_BYTES]).view(">u4")
        covered = np.ascontiguousarray(np.concatenate([raw[:, :8], raw[:, FRAME_HEADER_BYTES:]], axis=1)).view(word)
        # Each frame continues from the checksum *stored* before it, so those behind a bad one can be judged, too.
        computed = _checksums(covered, np.concatenate([before, heads[:-1, 4:6]]))
        current = (heads[:, 2:4] == np.frombuffer(salt, ">u4")).all(axis=1)
        valid = current & (computed == heads[:, 4:6]).all(axis=1)
        rows.append(np.stack([heads[:, 0], heads[:, 1] != 0, current, valid], axis=1).astype(np.int64))
        before = heads[-1:, 4:6]


def _judge(path: Path, frames: "np.ndarray[Any, Any]") -> None:
    pages, commits, current, valid = (frames[:, column] for column in range(4))
    if valid.all():
        return
    bad = int(np.argmin(valid))
    later = np.flatnonzero(valid[bad:] & commits[bad:]) + bad
    if len(later) == 0:
        return  # a transaction that was never committed
    begin = int(np.flatnonzero(commits[:bad])[-1]) + 1 if commits[:bad].any() else 0
    end = int(later[0])
    own_pages = pages[begin : end + 1][current[begin : end + 1] == 1]
    # A commit writes each of its pages once, in ascending order: if that holds up to the one commit frame, a power
    # failure that stored the frames of the last transaction out of order explains it, and nothing was acknowledged
    # (the head decides whether that is so).
    torn = len(later) == 1 and not valid[end + 1 :].any() and bool((np.diff(own_pages) > 0).all())
    if not torn:
        raise _lost(path, bad, len(later))


def _lost(path: Path, bad: int, commits: int) -> LogDamaged:
    return damaged(path, f"frame {bad} is bad, and SQLite would drop it and at least {commits} commits behind it")
