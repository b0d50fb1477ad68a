"""The folder of an SQLite log: a full disk, no permission, a newer format, a network file system."""

import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from gangline.events.log import CONTROL, DECISIONS, Entry, LogError, LogFull, LogTooNew
from gangline.events.sqlite import SqliteLog
from gangline.events.sqlite_mounts import is_network, mount_of, refuse_network_mount
from gangline.events.sqlite_partition import CHECKPOINT_PAGES
from tests.events.log_contract import ROOT, everything

NOBODY = 65534
BALLAST_BYTES = 3 * 1024 * 1024


@pytest.fixture
def tiny_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of `request.param` MiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        reason = f"no tmpfs can be mounted here: {mounted.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(log: SqliteLog, entry: Entry) -> int:
    """Append until the disk is full; returns how often that was acknowledged."""
    acked = 0
    while True:
        try:
            log.append(CONTROL, [entry])
        except LogFull as error:
            assert "control-0.db is full" in str(error)  # noqa: PT017 # how often it worked before is asked, too
            return acked
        acked += 1


@pytest.mark.parametrize("tiny_disk", [8, 30], indirect=True, ids=["in-the-wal", "after-checkpoints"])
def test_a_full_disk_loses_nothing_acknowledged_and_space_mends_it(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    log = SqliteLog(tiny_disk / "log")
    large, small = Entry(b"large", bytes(200_000)), Entry(b"small", b"small")
    expected = [large] * fill(log, large)
    expected += [small] * fill(log, small)
    assert len(expected) > 10
    assert [(record.key, record.value) for record in everything(log)] == expected
    ballast.unlink()
    log.append(CONTROL, [small, large])
    expected += [small, large]
    assert [(record.key, record.value) for record in everything(log)] == expected
    expected += [large] * fill(log, large)
    log.close()
    log = SqliteLog(tiny_disk / "log")
    assert [(record.key, record.value) for record in everything(log)] == expected
    log.close()


@pytest.mark.parametrize("tiny_disk", [8], indirect=True)
def test_a_full_disk_is_told_to_all_who_wait_for_one_commit(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    acked: dict[int, list[bytes]] = defaultdict(list)
    logs = [SqliteLog(tiny_disk / "log") for _ in range(4)]

    def append(writer: int) -> None:
        while True:
            value = b"%d:%d:" % (writer, len(acked[writer])) + bytes(3000)
            try:
                logs[writer].append(CONTROL, [Entry(b"", value)])
            except LogFull:
                return
            acked[writer].append(value)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ballast.unlink()
    logs[0].append(CONTROL, [Entry(b"", b"9:")])
    found: dict[int, list[bytes]] = defaultdict(list)
    for record in everything(logs[1]):
        found[int(record.value.split(b":")[0])].append(record.value)
    assert {writer: found[writer] for writer in range(4)} == acked
    for log in logs:
        log.close()


@pytest.mark.parametrize("tiny_disk", [4], indirect=True)
def test_a_disk_too_full_to_begin_a_log_says_so(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(4 * 1024 * 1024 - 256 * 1024))
    with pytest.raises(LogFull, match="free some space there"):
        SqliteLog(tiny_disk / "log")
    ballast.unlink()
    log = SqliteLog(tiny_disk / "log")
    ballast.write_bytes(bytes(4 * 1024 * 1024 - 1536 * 1024))
    with pytest.raises(LogFull, match=f"{DECISIONS}-0"):
        log.append(DECISIONS, [Entry(b"", bytes(500_000))])
    log.close()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Make a folder that any user may enter, and only its owner may write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def open_as_another(folder: Path, *, create: bool = True) -> str:
    """Return what a user without write permission is told."""
    program = (
        "import os, pathlib, sys\n"
        "from gangline.events.log import LogError\n"
        "from gangline.events.sqlite import SqliteLog\n"
        "if os.geteuid() == 0:\n"  # after the imports, which another user may not be able to read
        f"    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try: SqliteLog(pathlib.Path(sys.argv[1]), create=sys.argv[2] == 'True')\n"
        "except LogError as error: print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(create)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("create", [True, False])
def test_a_folder_without_write_permission_is_refused_with_the_way_out(public_folder: Path, create: bool) -> None:
    if os.geteuid() != 0:
        public_folder.chmod(0o555)
    said = open_as_another(public_folder / "log")
    assert said.startswith(f"LogError {public_folder}/log cannot be opened and written by user")
    if os.geteuid() != 0:
        public_folder.chmod(0o755)
    SqliteLog(public_folder / "log").close()
    if os.geteuid() != 0:
        (public_folder / "log").chmod(0o555)
    said = open_as_another(public_folder / "log", create=create)
    assert said.startswith(f"LogError {public_folder}/log cannot be opened and written by user")
    assert "Give that user write permission" in said
    (public_folder / "log").chmod(0o755)


def test_files_of_another_user_are_refused_with_the_way_out(public_folder: Path) -> None:
    SqliteLog(public_folder / "log").close()
    for path in [*(public_folder / "log").glob("*.db"), public_folder / "log"]:
        path.chmod(0o777 if path.is_dir() else 0o444)
    for path in (public_folder / "log" / "control-0.queue").iterdir():
        path.chmod(0o666)
    (public_folder / "log" / "control-0.queue").chmod(0o777)
    (public_folder / "log" / "control-0.head").chmod(0o666)
    if os.geteuid() == 0:
        said = open_as_another(public_folder / "log")
        assert said.startswith(f"LogError {public_folder}/log/control-0.db cannot be opened and written by user")


def test_a_folder_without_a_log_is_not_made_into_one_unasked(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no log in"):
        SqliteLog(tmp_path / "missing", create=False)
    assert not (tmp_path / "missing").exists()
    SqliteLog(tmp_path / "log").close()
    SqliteLog(tmp_path / "log", create=False).close()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "log"):
        with pytest.raises(LogError, match=f"{folder} cannot be a log's folder: .* is a file"):
            SqliteLog(folder)


def test_what_a_killed_creation_left_is_no_hindrance(tmp_path: Path) -> None:
    for name in ("control-0.db.new", "control-0.db.new-journal", "control-0.db.new-wal"):
        (tmp_path / name).write_bytes(b"half of something")
    log = SqliteLog(tmp_path)
    log.append(CONTROL, [Entry(b"a", b"a")])
    assert [record.value for record in everything(log)] == [b"a"]
    log.close()


def test_the_wal_stays_bounded_while_followers_read(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    bound = 2 * CHECKPOINT_PAGES * 4096
    batch = [Entry(b"job", bytes(1500)) for _ in range(2000)]
    followed: list[int] = []

    def follow() -> None:
        reader = log.reader(CONTROL)
        while len(followed) < 20 * len(batch):
            followed.extend(record.index for record in reader.read(limit=50, timeout_s=10.0))

    follower = threading.Thread(target=follow)
    follower.start()
    sizes = []
    for _ in range(20):
        log.append(CONTROL, batch)
        sizes.append((tmp_path / "control-0.db-wal").stat().st_size)
    follower.join(60)
    assert followed == list(range(20 * len(batch)))
    assert max(sizes) < bound < (tmp_path / "control-0.db").stat().st_size
    log.close()
    assert (tmp_path / "control-0.db-wal").stat().st_size == 0, "whoever is last leaves an empty WAL"


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    SqliteLog(tmp_path).close()
    connection = apsw.Connection(str(tmp_path / "control-0.db"))
    connection.execute("CREATE TABLE what_came_later (a)")
    connection.pragma("user_version", 2)
    connection.close()
    before = (tmp_path / "control-0.db").read_bytes()
    for _ in range(2):  # the first refusal holds no lock
        with pytest.raises(LogTooNew, match="has format 2, this gangline knows formats up to 1"):
            SqliteLog(tmp_path)
    assert (tmp_path / "control-0.db").read_bytes() == before


MOUNTS = """\
22 1 0:21 / / rw,relatime - ext4 /dev/root rw
31 22 0:25 / /home rw,relatime shared:1 - nfs4 server:/home rw
32 22 0:26 / /home/local\\040disk rw - xfs /dev/sdb rw
33 22 0:27 / /mnt/far rw - fuse.sshfs user@host: rw
34 22 0:28 / /scratch rw - lustre mgs@tcp:/scratch rw
35 22 0:29 / /scratch rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "network"),
    [
        ("/var/lib/gangline", "ext4", False),
        ("/home/ann/.gangline", "nfs4", True),
        ("/home/local disk/log", "xfs", False),
        ("/homework/log", "ext4", False),
        ("/mnt/far", "fuse.sshfs", True),
        ("/scratch/log", "tmpfs", False),
    ],
)
def test_the_mount_that_holds_a_folder_decides(folder: str, kind: str, network: bool) -> None:
    assert mount_of(Path(folder), MOUNTS)[1] == kind
    assert is_network(kind) == network


def test_a_network_file_system_is_refused_with_the_way_out(tmp_path: Path) -> None:
    mounts = f"{MOUNTS}36 22 0:30 / {tmp_path.resolve()} rw - cifs //server/share rw\n"
    with pytest.raises(LogError, match=r"a network file system \(cifs\).*put the log on a local disk"):
        refuse_network_mount(tmp_path / "log", mounts)
    refuse_network_mount(tmp_path)


def test_the_wal_stays_bounded_while_readers_take_turns_without_a_gap(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    log.append(CONTROL, [Entry(b"job", b"first")])
    reading, over = [threading.Event(), threading.Event()], threading.Event()

    def read(me: int) -> None:
        connection = apsw.Connection(str(tmp_path / "control-0.db"), flags=apsw.SQLITE_OPEN_READONLY)
        while not over.is_set():
            connection.execute("BEGIN; SELECT count(*) FROM sqlite_master").fetchall()
            reading[me].set()
            reading[1 - me].wait(1)
            reading[1 - me].clear()
            connection.execute("END")
        connection.close()

    readers = [threading.Thread(target=read, args=(me,)) for me in range(2)]
    for reader in readers:
        reader.start()
    batch = [Entry(b"job", bytes(1500)) for _ in range(2000)]
    sizes = []
    for _ in range(20):
        log.append(CONTROL, batch)
        sizes.append((tmp_path / "control-0.db-wal").stat().st_size)
    over.set()
    for reader in readers:
        reader.join(60)
    assert max(sizes) < 2 * CHECKPOINT_PAGES * 4096 < (tmp_path / "control-0.db").stat().st_size
    log.close()
