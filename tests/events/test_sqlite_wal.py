"""What of a write-ahead log is damage, by SQLite's own format, in both byte orders."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import apsw
import numpy as np
import pytest

from gangline.events.log import LogDamaged
from gangline.events.sqlite_wal import FRAMES_AT_ONCE, _checksums, verify

PAGE_BYTES = 512
LITTLE, BIG = 0x377F0682, 0x377F0683


def checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    """Compute SQLite's checksum word by word, as https://sqlite.org/walformat.html tells it."""
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even in range(0, len(words), 2):
        first = (first + words[even] + second) % 2**32
        second = (second + words[even + 1] + first) % 2**32
    return first, second


def wal(path: Path, frames: Sequence[tuple[int, int]], magic: int = LITTLE) -> None:
    """Write a WAL of frames (page number, database size if it ends a commit, else 0)."""
    order = "<" if magic == LITTLE else ">"
    chosen = random.Random(1)
    salt = chosen.randbytes(8)
    header = struct.pack(">IIII8s", magic, 3007000, PAGE_BYTES, 0, salt)
    state = checksum(header, order, (0, 0))
    parts = [header, struct.pack(">II", *state)]
    for page, size in frames:
        head, content = struct.pack(">II", page, size), chosen.randbytes(PAGE_BYTES)
        state = checksum(head + content, order, state)
        parts += [head, salt, struct.pack(">II", *state), content]
    path.write_bytes(b"".join(parts))


def harm(path: Path, frame: int, at: int = 100) -> None:
    with path.open("r+b") as file:
        file.seek(32 + frame * (24 + PAGE_BYTES) + at)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))


def test_the_checksum_is_that_of_sqlite() -> None:
    chosen = random.Random(2)
    rows = [chosen.randbytes(520) for _ in range(20)]
    starts = [(chosen.randrange(2**32), chosen.randrange(2**32)) for _ in rows]
    for order in "<>":
        words = np.stack([np.frombuffer(row, f"{order}u4") for row in rows])
        computed = _checksums(words, np.array(starts, np.uint32))
        expected = [checksum(row, order, start) for row, start in zip(rows, starts, strict=True)]
        assert [tuple(row) for row in computed.tolist()] == expected


def test_a_wal_written_by_sqlite_is_whole(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "some.db"))
    connection.pragma("journal_mode", "wal")
    connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
    connection.execute("CREATE TABLE t (a)")
    for number in range(100):
        connection.execute("INSERT INTO t VALUES (?)", (bytes([number]) * 300,))
    path = tmp_path / "some.db-wal"
    assert path.stat().st_size > 100 * 4096
    verify(path)
    connection.close()


@pytest.mark.parametrize("magic", [LITTLE, BIG])
def test_a_bad_frame_within_a_synced_commit_is_damage(magic: int, tmp_path: Path) -> None:
    path = tmp_path / "wal"
    for frame in range(6):
        wal(path, [(1, 0), (2, 2), (1, 0), (2, 2), (2, 2), (3, 3), (1, 0), (2, 3), (3, 3)], magic)
        verify(path)
        harm(path, frame)
        with pytest.raises(LogDamaged, match=f"frame {frame} is bad"):
            verify(path)


@pytest.mark.parametrize("at", [3, 9, 17, 60])
def test_each_part_of_a_frame_is_covered(at: int, tmp_path: Path) -> None:
    path = tmp_path / "wal"
    wal(path, [(1, 2), (1, 2), (2, 2), (2, 2), (2, 2)])
    harm(path, 1, at)
    with pytest.raises(LogDamaged, match="frame 1 is bad"):
        verify(path)


def test_a_bad_frame_in_the_last_transaction_may_come_of_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "wal"
    for frame in (1, 2, 3, 4):
        wal(path, [(2, 2), (1, 0), (2, 0), (5, 0), (9, 9)])
        harm(path, frame)
        verify(path)


def test_damage_beyond_the_first_frames_read_together_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wal"
    wal(path, [(2, 2)] * (FRAMES_AT_ONCE + 10))
    verify(path)
    for frame in (FRAMES_AT_ONCE - 1, FRAMES_AT_ONCE, FRAMES_AT_ONCE + 1):
        harm(path, frame)
        with pytest.raises(LogDamaged, match=f"frame {frame} is bad"):
            verify(path)
        harm(path, frame)


def test_a_bad_header_before_frames_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "wal"
    for at in range(32):
        wal(path, [(1, 1), (1, 1)])
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(LogDamaged, match="its header's checksum is wrong"):
            verify(path)


def test_a_wal_without_frames_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "wal"
    verify(path)
    for content in (b"", bytes(20), bytes(5000)):
        path.write_bytes(content)
        verify(path)
