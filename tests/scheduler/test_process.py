"""The scheduler as a process of its own: how it ends, what it says, and how one version follows another."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gangline.events import codec
from gangline.events.control import ClockTicked
from gangline.events.decisions import TermOpened
from gangline.events.sqlite import SqliteLog
from gangline.events.sqlite_lock import FileLock
from gangline.scheduler.code_store import code_digest
from tests.scheduler.loop_world import World
from tests.scheduler.replays import replay, valid_rounds

SOURCES = Path(__file__).parent.parent.parent / "src" / "gangline"
WAIT_S = 60.0

pytestmark = pytest.mark.slow


class Scheduler:
    """`python -m gangline.scheduler`, from these sources or a copy of them."""

    def __init__(self, home: Path, url: str, *options: str, sources: Path | None = None) -> None:
        environment = os.environ | ({"PYTHONPATH": str(sources)} if sources is not None else {})
        self.said = home / f"said-{os.urandom(4).hex()}"
        with self.said.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gangline.scheduler", "--home", str(home), "--log", url, *options],
                env=environment,
                stderr=file,
                stdout=file,
                cwd=home,
            )

    def text(self) -> str:
        return self.said.read_text()

    def ends(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and its last word."""
        code = self.process.wait(WAIT_S)
        assert "Traceback" not in self.text()
        return code, (self.text().splitlines() or [""])[-1]

    def terminate(self) -> tuple[int, str]:
        self.process.terminate()
        return self.ends()


class Site(World):
    """A log in SQLite, a home, and the schedulers that a test starts there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SqliteLog(folder / "log"))
        self.home = folder
        self.url = f"sqlite:{folder / 'log'}"
        self.started: list[Scheduler] = []

    def scheduler(self, *options: str, sources: Path | None = None, url: str | None = None) -> Scheduler:
        self.started.append(Scheduler(self.home, url or self.url, *options, sources=sources))
        return self.started[-1]

    def wait_until(self, condition: Callable[[], bool], scheduler: Scheduler) -> None:
        for _ in range(int(WAIT_S / 0.02)):
            if condition():
                return
            assert scheduler.process.poll() is None, scheduler.text()
            threading.Event().wait(0.02)
        raise AssertionError(f"did not come about within {WAIT_S} s: {scheduler.text()}")

    def stops(self, scheduler: Scheduler) -> None:
        """Stop a process while it holds no lock of the log, or nobody else could append: the test holds them then."""
        with ExitStack() as held:
            for path in sorted((self.home / "log").rglob("lock")):
                lock = held.enter_context(closing(FileLock(path)))
                self.wait_until(lock.try_exclusive, scheduler)
            scheduler.process.send_signal(signal.SIGSTOP)
            stat = Path(f"/proc/{scheduler.process.pid}/stat")
            self.wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", scheduler)

    def wait_until_decided(self, scheduler: Scheduler) -> None:
        self.wait_until(lambda: max(valid_rounds(self.log)[0], default=-1) >= self.last_input(), scheduler)

    def terms(self) -> list[TermOpened]:
        events = [codec.decode(record.value) for record in self.decisions()]
        return [event for event in events if isinstance(event, TermOpened)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for scheduler in site.started:
        scheduler.process.kill()
        scheduler.process.wait()
    site.log.close()


def test_it_decides_until_it_is_terminated_and_leaves_a_boundary(site: Site) -> None:
    site.put(site.inputs.policy(), site.inputs.node(), site.inputs.submit())
    scheduler = site.scheduler("--open-term")
    site.wait_until_decided(scheduler)
    assert scheduler.terminate()[0] == 0
    states = replay(site.log).states
    boundary = site.store.newest()
    assert boundary is not None
    assert boundary.state == states[max(states)]
    assert site.takeovers()[-1] == ""
    assert site.terms()[0].code_digest == boundary.header.code_digest == code_digest()


def test_a_stopped_process_is_taken_over_from_and_changes_nothing_when_it_goes_on(site: Site) -> None:
    site.put(site.inputs.policy(), site.inputs.node(), site.inputs.submit())
    stopped = site.scheduler("--open-term")
    site.wait_until_decided(stopped)
    site.stops(stopped)
    site.put(*[site.inputs.submit() for _ in range(200)])
    other = site.scheduler()
    site.wait_until(lambda: len(site.takeovers()) >= 2, other)
    site.put(site.inputs.submit())
    site.wait_until_decided(other)
    before = replay(site.log).decisions
    stopped.process.send_signal(signal.SIGCONT)
    site.put(site.inputs.submit(gpus=99))
    site.wait_until_decided(other)
    assert replay(site.log).decisions[: len(before)] == before
    # It is still good for a takeover itself.
    other.process.kill()
    other.process.wait()
    site.put(site.inputs.submit(gpus=99))
    site.wait_until_decided(stopped)
    assert len(site.takeovers()) >= 3
    assert stopped.terminate()[0] == 0
    replay(site.log)


def test_without_a_log_it_says_so_and_ends(site: Site) -> None:
    code, word = site.scheduler(url=f"sqlite:{site.home / 'elsewhere'}").ends()
    assert code != 0
    assert word.startswith("gangline scheduler: there is no log in")


def test_a_url_that_names_no_log_is_a_usage_error(site: Site) -> None:
    assert site.scheduler(url="postgres://x").ends()[0] == 2


def test_while_the_log_does_not_answer_it_waits_and_says_so(site: Site) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # never listens
        scheduler = site.scheduler(url=f"kafka://127.0.0.1:{held.getsockname()[1]}/x")
        site.wait_until(lambda: "starting again in" in scheduler.text(), scheduler)
        assert scheduler.terminate()[0] == 0


def test_a_halt_is_one_clear_line_and_exit_code_1(site: Site) -> None:
    site.put(site.inputs.policy(), b"\xc3\x01" + bytes(8))
    code, word = site.scheduler("--open-term").ends()
    assert code == 1
    assert word.startswith("gangline scheduler: record 2 of 'control': ")
    assert "newer" in word


def copied(folder: Path, name: str, patches: dict[str, tuple[str, str]]) -> Path:
    """Return a folder with a copy of the sources, in each file of `patches` one text replaced by another."""
    shutil.copytree(SOURCES, folder / name / "gangline", ignore=shutil.ignore_patterns("__pycache__"))
    for file, (old, new) in patches.items():
        path = folder / name / "gangline" / file
        source = path.read_text()
        assert source.count(old) == 1
        path.write_text(source.replace(old, new))
    return folder / name


def test_a_bug_is_one_clear_line_and_its_traceback_is_kept(site: Site) -> None:
    bug = {"scheduler/decide.py": ("    round_ = Round(state, views)", "    round_ = Round(state // 0, views)")}
    site.put(site.inputs.policy())
    code, word = site.scheduler("--open-term", sources=copied(site.home, "buggy", bug)).ends()
    assert code == 1
    assert word.startswith("gangline scheduler: stopped on TypeError")
    [kept] = site.home.glob("scheduler-*.traceback")
    assert str(kept) in word
    assert "state // 0" in kept.read_text()
    assert len(site.decisions()) == 2  # the term, and no round


OLD_FORMAT = {
    "scheduler/canonical.py": (
        "    return _encoder.encode([STATE_FORMAT, scalars, tables])",
        '    tables["waiting"] = tables.pop("pending")\n    return _encoder.encode([0, scalars, tables])',
    ),
    "scheduler/rules/quarantine.py": ("MAX_REASON_CHARACTERS = 200", "MAX_REASON_CHARACTERS = 100"),
}
OLD_READER = (
    "        if format_ != STATE_FORMAT:",
    '        format_, tables["pending"] = STATE_FORMAT, tables.pop("waiting")\n        if format_ != STATE_FORMAT:',
)
STEP = {
    "scheduler/migrate.py": (
        "MappingProxyType({1: _from_1})",
        """MappingProxyType(
    {
        0: lambda old: Plain(
            old.scalars, {name.replace("waiting", "pending"): old.tables[name] for name in old.tables}
        ),
        1: lambda old: old,
    }
)""",
    )
}


def test_one_version_follows_another_through_its_boundary_and_a_migration(site: Site) -> None:
    old_code = copied(site.home, "old", OLD_FORMAT)
    canonical = old_code / "gangline/scheduler/canonical.py"
    canonical.write_text(canonical.read_text().replace(*OLD_READER))
    new_code = copied(site.home, "new", STEP)

    site.put(site.inputs.policy(), site.inputs.node(), site.inputs.submit(gpus=2), site.inputs.submit())
    old = site.scheduler("--open-term", sources=old_code)
    site.wait_until_decided(old)
    # The new one waits while the old one decides, and says for what.
    new = site.scheduler("--open-term", sources=new_code)
    site.wait_until(lambda: "waiting for the boundary" in new.text(), new)
    site.put(site.inputs.submit())
    site.wait_until_decided(old)
    old.process.send_signal(signal.SIGKILL)  # without a boundary
    old.process.wait()
    # Only the version that opened the term can write its boundary.
    assert site.scheduler("--boundary", sources=new_code).ends()[0] == 4
    assert len(site.terms()) == 1
    assert site.scheduler("--boundary", sources=old_code).ends()[0] == 0
    site.wait_until(lambda: len(site.terms()) == 2, new)
    site.put(site.inputs.submit())
    site.wait_until_decided(new)

    # The old version comes back, and stands by.
    back = site.scheduler(sources=old_code)
    site.wait_until(lambda: "standing by" in back.text(), back)
    length = len(site.decisions())
    assert back.terminate()[0] == 0
    assert len(site.decisions()) == length
    assert new.terminate()[0] == 0
    first, second = site.terms()
    assert first.code_digest != second.code_digest
    assert second.boundary_sha256 != second.state_sha256
    replay(site.log)


def test_a_version_that_cannot_read_the_boundary_halts_and_the_old_one_can_go_on(site: Site) -> None:
    old_code = copied(site.home, "old", OLD_FORMAT)
    site.put(site.inputs.policy(), site.inputs.submit())
    old = site.scheduler("--open-term", sources=old_code)
    site.wait_until_decided(old)
    old.terminate()
    code, word = site.scheduler("--open-term").ends()
    assert code == 1
    assert "has no step from 0" in word
    assert len(site.terms()) == 1
    assert any(record.value.startswith(codec.header_of(ClockTicked)) for record in site.control())
