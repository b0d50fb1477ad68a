"""The spool's contract: nothing acknowledged is lost to SIGKILL, a torn end is tolerated, damage is reported."""

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from gangline.schemas import spool as s

HEAD = s.SpoolHead(run="job-abc", attempt=3, rank=1, created_at_us=7)


def point(step: int, **values: float) -> s.Point:
    return s.Point(at_us=1_000_000 + step, step=step, values=values or {"loss": step / 7})


def write(path: Path, points: list[s.Point]) -> list[int]:
    """Write points; gives the offset behind the head and behind each point."""
    ends = []
    with s.SpoolWriter(path, HEAD) as writer:
        ends.append(path.stat().st_size)
        for each in points:
            writer.append(each)
            ends.append(path.stat().st_size)
    return ends


def read_all(path: Path, limit_bytes: int = s.READ_BYTES) -> tuple[list[s.Point], list[s.Damage], int]:
    points: list[s.Point] = []
    damage: list[s.Damage] = []
    offset = 0
    while True:
        batch = s.read_spool(path, offset, limit_bytes=limit_bytes)
        assert batch.head == HEAD
        points += batch.points
        damage += batch.damage
        if batch.next_offset == offset:
            return points, damage, batch.unfinished_bytes
        offset = batch.next_offset


def test_points_come_back_as_they_were_in_any_order_of_steps(tmp_path: Path) -> None:
    points = [point(5), point(3, accuracy=0.5, lr=1e-300), point(2**62), point(3, accuracy=0.75)]
    write(tmp_path / "a.spool", points)
    assert read_all(tmp_path / "a.spool") == (points, [], 0)


def test_nan_and_infinities_survive(tmp_path: Path) -> None:
    write(tmp_path / "a.spool", [point(1, a=math.nan, b=math.inf, c=-math.inf, d=-0.0)])
    values = read_all(tmp_path / "a.spool")[0][0].values
    assert math.isnan(values["a"])
    assert (values["b"], values["c"], math.copysign(1, values["d"])) == (math.inf, -math.inf, -1.0)


def test_a_reader_can_go_on_where_it_was_while_the_spool_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    with s.SpoolWriter(path, HEAD) as writer:
        writer.append(point(1))
        first = s.read_spool(path)
        assert s.read_spool(path, first.next_offset).points == ()
        writer.append(point(2))
        second = s.read_spool(path, first.next_offset)
    assert (first.points, second.points) == ((point(1),), (point(2),))


def test_a_long_spool_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    points = [point(step, **{f"metric_{i:04}": float(i) for i in range(2000)}) for step in range(60)]
    write(path, points)
    first = s.read_spool(path, limit_bytes=1)
    assert 0 < len(first.points) < len(points)
    assert read_all(path, limit_bytes=1) == (points, [], 0)


@pytest.mark.parametrize("kept_bytes", [1, 4, 11, 12, 13, 20])
def test_a_torn_end_is_no_damage_and_the_next_writer_drops_it(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "a.spool"
    ends = write(path, [point(1), point(2)])
    os.truncate(path, ends[1] + kept_bytes)
    assert read_all(path) == ([point(1)], [], kept_bytes)
    write(path, [point(3)])
    assert read_all(path) == ([point(1), point(3)], [], 0)


def test_zeros_that_a_failing_machine_leaves_at_the_end_are_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    ends = write(path, [point(1)])
    os.truncate(path, ends[-1] + 4096)
    assert read_all(path) == ([point(1)], [], 4096)
    write(path, [point(2)])
    assert read_all(path) == ([point(1), point(2)], [], 0)


@pytest.mark.parametrize("where", range(0, 40, 3))
def test_a_flipped_bit_in_the_middle_costs_one_point_and_is_reported(tmp_path: Path, where: int) -> None:
    path = tmp_path / "a.spool"
    ends = write(path, [point(step) for step in range(5)])
    data = bytearray(path.read_bytes())
    data[ends[2] + where] ^= 0x40
    path.write_bytes(data)
    points, damage, unfinished = read_all(path)
    assert points == [point(step) for step in (0, 1, 3, 4)]
    assert [(d.offset, d.size_bytes) for d in damage] == [(ends[2], ends[3] - ends[2])]
    assert unfinished == 0


def test_damage_longer_than_a_record_is_passed(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    many = {f"metric_{i:05}": float(i) for i in range(4000)}
    points = [point(step, **many) for step in range(30)]
    ends = write(path, points)
    with path.open("r+b") as stream:
        stream.seek(ends[2])
        stream.write(b"\xa5" * (ends[20] - ends[2]))
    found, damage, unfinished = read_all(path, limit_bytes=1)
    assert found == points[:2] + points[20:]
    assert sum(d.size_bytes for d in damage) == ends[20] - ends[2]
    assert unfinished == 0


def test_a_file_that_is_no_spool_is_refused_by_reader_and_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    path.write_bytes(b"loss,step\n" * 100)
    with pytest.raises(s.NotASpool):
        s.read_spool(path)
    with pytest.raises(s.NotASpool):
        s.SpoolWriter(path, HEAD)
    assert path.read_bytes() == b"loss,step\n" * 100


def test_a_spool_whose_writer_died_in_the_first_record_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    ends = write(path, [])
    os.truncate(path, ends[0] - 3)
    write(path, [point(1)])
    assert read_all(path) == ([point(1)], [], 0)


def test_a_spool_of_a_newer_format_says_to_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    s.SpoolWriter(path, msgspec.structs.replace(HEAD, format=2)).close()
    with pytest.raises(s.SpoolTooNew, match=r"format 2.*up to 1"):
        s.read_spool(path)


def test_another_ranks_spool_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    write(path, [point(1)])
    with pytest.raises(s.SpoolError, match="belongs to rank 1"):
        s.SpoolWriter(path, msgspec.structs.replace(HEAD, rank=2))


def test_two_writers_of_one_spool_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    with (
        s.SpoolWriter(path, HEAD),
        pytest.raises(s.SpoolUnwritable, match="two processes log as rank 1"),
    ):
        s.SpoolWriter(path, HEAD)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(s.SpoolUnwritable, match=r"no/a\.spool: No such file"):
        s.SpoolWriter(tmp_path / "no" / "a.spool", HEAD)


def test_a_point_over_the_limit_is_refused_and_the_spool_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    with s.SpoolWriter(path, HEAD) as writer:
        with pytest.raises(s.SpoolError, match="256000 is the limit"):
            writer.append(point(1, **{f"m{i}": 0.0 for i in range(30_000)}))
        writer.append(point(2))
    assert read_all(path) == ([point(2)], [], 0)


def test_a_full_disk_is_an_error_that_leaves_the_spool_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    code = f"""
import resource, signal, sys
from pathlib import Path
from gangline.schemas.spool import Point, SpoolHead, SpoolUnwritable, SpoolWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # a write past it is short, then fails: as on a full disk
writer = SpoolWriter(Path({str(path)!r}), SpoolHead(run="job-abc", attempt=3, rank=1, created_at_us=7))
for step in range(1000):
    try:
        writer.append(Point(at_us=1_000_000 + step, step=step, values={{"loss": step / 7}}))
    except SpoolUnwritable as error:
        print(step, error)
        break
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    acknowledged = int(result.stdout.split()[0])
    assert "free space" in result.stdout
    assert read_all(path) == ([point(step) for step in range(acknowledged)], [], 0)
    assert acknowledged > 10


def test_a_sigkill_right_after_an_append_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    code = f"""
import os, signal
from pathlib import Path
from gangline.schemas.spool import Point, SpoolHead, SpoolWriter
writer = SpoolWriter(Path({str(path)!r}), SpoolHead(run="job-abc", attempt=3, rank=1, created_at_us=7))
for step in range(500):
    writer.append(Point(at_us=1_000_000 + step, step=step, values={{"loss": step / 7}}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    result = subprocess.run([sys.executable, "-c", code], check=False)
    assert result.returncode == -signal.SIGKILL
    assert read_all(path) == ([point(step) for step in range(500)], [], 0)


def test_a_spool_folder_without_write_permission_is_told_with_the_way_out() -> None:
    # pytest's own folders are closed to other users.
    public_folder = Path(tempfile.mkdtemp())
    public_folder.chmod(0o555)
    code = f"""
import os
from pathlib import Path
from gangline.schemas.spool import SpoolHead, SpoolUnwritable, SpoolWriter
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    SpoolWriter(Path({str(public_folder / "a.spool")!r}), SpoolHead(run="job-abc", attempt=3, rank=1, created_at_us=7))
except SpoolUnwritable as error:
    print(error)
"""
    try:
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    finally:
        shutil.rmtree(public_folder)
    assert str(public_folder) in result.stdout
    assert "Permission denied" in result.stdout
