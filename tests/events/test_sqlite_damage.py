"""Damage to the files of an SQLite log is detected and named, never skipped."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from gangline.events.log import CONTROL, Entry, LogDamaged, LogError, LogTooNew, Record
from gangline.events.sqlite import SqliteLog
from gangline.events.sqlite_head import Head
from gangline.events.sqlite_wal import FRAME_HEADER_BYTES, HEADER_BYTES
from tests.events.log_contract import content, everything

PAGE_BYTES = 4096
IN_DATABASE, IN_WAL = 150, 60
FLIPS = {"control-0.db": 300, "control-0.db-wal": 300, "control-0.head": 30}
"""Flipped bits tried per file; each costs about 10 ms."""

DATABASE, WAL, HEAD = "control-0.db", "control-0.db-wal", "control-0.head"


def entry(number: int) -> Entry:
    return Entry(b"job-%d" % (number % 7), b"record %d " % number * (number % 40))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a log as a kill leaves it: IN_DATABASE records in the database, IN_WAL in its WAL, in commits of 1 to 3."""
    folder = tmp_path_factory.mktemp("crashed")
    log = SqliteLog(folder / "open")
    log.append(CONTROL, [entry(number) for number in range(IN_DATABASE)])
    log.close()
    log = SqliteLog(folder / "open")
    number = IN_DATABASE
    while number < IN_DATABASE + IN_WAL:
        count = 1 + number % 3
        log.append(CONTROL, [entry(each) for each in range(number, number + count)])
        number += count
    shutil.copytree(folder / "open", folder / "crashed", ignore=shutil.ignore_patterns("wake-*"))
    log.close()
    assert (folder / "crashed" / WAL).stat().st_size > 20 * PAGE_BYTES
    return folder / "crashed"


@pytest.fixture(scope="module")
def records(crashed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Read what it holds."""
    folder = tmp_path_factory.mktemp("whole") / "log"
    shutil.copytree(crashed, folder)
    log = SqliteLog(folder)
    found = everything(log)
    log.close()
    assert content(found) == [entry(number) for number in range(len(found))]
    assert len(found) >= IN_DATABASE + IN_WAL
    return found


def read_after(folder: Path, harm: Callable[[Path], object]) -> list[Record] | LogError:
    """Return what is read after harm was done, or the error that names it; and append to what is said to be whole."""
    harm(folder)
    try:
        log = SqliteLog(folder)
    except LogError as error:
        return error
    try:
        found = everything(log)
        log.append(CONTROL, [Entry(b"after", b"after")])
        again = everything(log)
    except LogError as error:
        return error
    finally:
        log.close()
    assert content(again) == [*content(found), (b"after", b"after")]
    return found


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", [DATABASE, WAL, HEAD])
def test_every_flipped_bit_is_named_or_harmless(
    name: str, crashed: Path, records: list[Record], tmp_path: Path
) -> None:
    chosen = random.Random(f"flips of {name}")
    bits = (crashed / name).stat().st_size * 8
    named = 0
    for number in range(FLIPS[name]):
        bit = chosen.randrange(bits)
        folder = tmp_path / str(number)
        shutil.copytree(crashed, folder)
        found = read_after(folder, lambda folder, bit=bit: flip(folder / name, bit))  # type: ignore[misc]
        if isinstance(found, LogError):
            assert isinstance(found, (LogDamaged, LogTooNew)), f"bit {bit}: {found!r}"
            assert str(folder) in str(found), f"bit {bit}: {found}"
            named += 1
        else:
            assert found == records, f"bit {bit} of {name}: {len(found)} records of {len(records)}"
        shutil.rmtree(folder)
    assert named > 0 or name == HEAD


@pytest.mark.parametrize("name", [DATABASE, WAL])
def test_every_truncation_is_named_or_harmless(name: str, crashed: Path, records: list[Record], tmp_path: Path) -> None:
    chosen = random.Random(f"truncations of {name}")
    size = (crashed / name).stat().st_size
    for number, keep in enumerate([0, 1, HEADER_BYTES, *(chosen.randrange(size) for _ in range(40))]):
        folder = tmp_path / str(number)
        shutil.copytree(crashed, folder)
        found = read_after(
            folder,
            lambda folder, keep=keep: (folder / name).write_bytes((folder / name).read_bytes()[:keep]),  # type: ignore[misc]
        )
        assert isinstance(found, LogDamaged) or found == records, f"{keep} bytes kept: {found!r}"


def test_every_bit_of_one_record_is_covered_by_its_checksum(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    log.append(CONTROL, [Entry(b"a key to be found", b"a value to be found")])
    log.close()
    data = (tmp_path / "log" / DATABASE).read_bytes()
    for text in (b"a key to be found", b"a value to be found"):
        for bit in range(8 * data.index(text), 8 * (data.index(text) + len(text))):
            flip(tmp_path / "log" / DATABASE, bit)
            with pytest.raises(LogDamaged, match="the checksum of record 0 is wrong"):
                SqliteLog(tmp_path / "log")
            flip(tmp_path / "log" / DATABASE, bit)
    assert read_after(tmp_path / "log", lambda _: None) == [Record(0, 0, b"a key to be found", b"a value to be found")]


def test_commits_behind_a_bad_frame_are_not_dropped_even_without_a_head(crashed: Path, tmp_path: Path) -> None:
    frames = ((crashed / WAL).stat().st_size - HEADER_BYTES) // (FRAME_HEADER_BYTES + PAGE_BYTES)
    for frame in range(frames - 8):  # of the last commits' frames only the head tells
        folder = tmp_path / str(frame)
        shutil.copytree(crashed, folder)
        (folder / HEAD).unlink()
        flip(folder / WAL, 8 * (HEADER_BYTES + frame * (FRAME_HEADER_BYTES + PAGE_BYTES) + 1000))
        with pytest.raises(LogDamaged, match=rf"frame {frame} is bad, and SQLite would drop it and at least"):
            SqliteLog(folder)
        assert (folder / WAL).read_bytes() != b"", "the file is kept for inspection"


def test_a_torn_tail_of_the_wal_is_no_damage(crashed: Path, records: list[Record], tmp_path: Path) -> None:
    shutil.copytree(crashed, tmp_path / "log")
    with (tmp_path / "log" / WAL).open("r+b") as file:
        file.seek(0, 2)
        file.write((crashed / WAL).read_bytes()[-3 * PAGE_BYTES : -PAGE_BYTES // 2])
    assert read_after(tmp_path / "log", lambda _: None) == records


def test_a_transaction_that_a_power_failure_stored_out_of_order_is_no_damage(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    log.append(CONTROL, [entry(0)])
    frames_before = ((tmp_path / "log" / WAL).stat().st_size - HEADER_BYTES) // (FRAME_HEADER_BYTES + PAGE_BYTES)
    head = (tmp_path / "log" / HEAD).read_bytes()
    log.append(CONTROL, [Entry(b"large", bytes(10 * PAGE_BYTES))])
    shutil.copytree(tmp_path / "log", tmp_path / "lost", ignore=shutil.ignore_patterns("wake-*"))
    log.close()
    (tmp_path / "lost" / HEAD).write_bytes(head)  # it was not acknowledged
    flip(tmp_path / "lost" / WAL, 8 * (HEADER_BYTES + (frames_before + 2) * (FRAME_HEADER_BYTES + PAGE_BYTES) + 500))
    found = read_after(tmp_path / "lost", lambda _: None)
    assert not isinstance(found, LogError)
    assert content(found) == [entry(0)]


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    log.append(CONTROL, [entry(number) for number in range(10)])
    log.close()
    connection = apsw.Connection(str(tmp_path / DATABASE))
    connection.execute("DELETE FROM records WHERE idx = 4")
    connection.close()
    log = SqliteLog(tmp_path)
    reader = log.reader(CONTROL)
    with pytest.raises(LogDamaged, match="record 4 is missing, 5 comes in its place"):
        reader.read()
    log.close()


@pytest.mark.parametrize("kept", [9, 5, 0])
def test_missing_last_records_are_named_to_readers_and_writers(kept: int, tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    log.append(CONTROL, [entry(number) for number in range(10)])
    reader = log.reader(CONTROL)
    connection = apsw.Connection(str(tmp_path / DATABASE))
    connection.execute("DELETE FROM records WHERE idx >= ?", (kept,))
    connection.close()
    lost = f"10 records were acknowledged, but (those from )?{kept} (on are|is) missing"
    if kept:
        assert len(reader.read()) == kept
    with pytest.raises(LogDamaged, match=lost):
        reader.read()
    with pytest.raises(LogDamaged, match=lost):
        log.append(CONTROL, [entry(10)])
    log.close()
    with pytest.raises(LogDamaged, match=lost):
        SqliteLog(tmp_path)


@pytest.mark.parametrize("name", [DATABASE, WAL])
def test_a_removed_file_is_named(name: str, crashed: Path, tmp_path: Path) -> None:
    found = read_after(shutil.copytree(crashed, tmp_path / "log"), lambda folder: (folder / name).unlink())
    assert isinstance(found, LogDamaged)
    assert "missing" in str(found)


def test_a_database_replaced_while_open_is_named(tmp_path: Path) -> None:
    other = SqliteLog(tmp_path / "other")
    other.append(CONTROL, [entry(0), entry(1)])
    other.close()
    log = SqliteLog(tmp_path / "log")
    log.append(CONTROL, [entry(0)])
    reader = log.reader(CONTROL)
    assert len(reader.read()) == 1
    (tmp_path / "other" / DATABASE).replace(tmp_path / "log" / DATABASE)
    with pytest.raises(LogDamaged, match="it was replaced while open"):
        reader.read(timeout_s=1.0)
    with pytest.raises(LogDamaged, match=r"control-0\.db is damaged"):
        log.append(CONTROL, [entry(1)])
    log.close()


def test_a_file_that_is_no_log_is_named(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / DATABASE))
    connection.execute("CREATE TABLE records (idx INTEGER PRIMARY KEY)")
    connection.close()
    with pytest.raises(LogDamaged, match="it is an SQLite database, but not a log of gangline"):
        SqliteLog(tmp_path)
    (tmp_path / DATABASE).write_bytes(b"something else entirely" * 300)
    with pytest.raises(LogDamaged, match="file is not a database"):
        SqliteLog(tmp_path)


def test_a_head_torn_in_mid_write_leaves_the_one_before(tmp_path: Path) -> None:
    head = Head(tmp_path / "head")
    assert head.read() == 0
    for count in range(2, 40, 2):
        before = head.read()
        whole = head.path.read_bytes()
        head.write(count)
        assert head.read() == count
        after = head.path.read_bytes()
        changed = [at for at in range(len(whole)) if whole[at] != after[at]]
        for torn in changed[:-1]:
            head.path.write_bytes(after[: torn + 1] + whole[torn + 1 :])
            assert head.read() in {before, count}
        head.path.write_bytes(after)
    head.close()
