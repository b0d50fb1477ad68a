"""Parts are started again; one that gangline can go on without is never given up, and its absence is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.cli import supervisor
from gangline.cli.supervisor import GaveUp, Part, stop
from tests.cli.running import until

PROGRAM = """
import pathlib, sys, time
if not pathlib.Path("well").exists():
    sys.exit(pathlib.Path("wrong").read_text())
pathlib.Path("runs").touch()
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a part that ends until there is a file `well`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(supervisor, "SPARED_S", 0.0)
    monkeypatch.setattr(supervisor, "HEALTHY_S", 5.0)
    (tmp_path / "part.py").write_text(PROGRAM)
    (tmp_path / "wrong").write_text("the routes are wrong")
    return tmp_path


@pytest.fixture
def spared(folder: Path) -> Iterator[Part]:
    part = Part("notifier", ["part"], folder / "part.log", without="nobody is told")
    part.start()
    yield part
    stop([part])


def ends(part: Part, times: int) -> None:
    """Look at a part until it was started so often again."""
    for _ in range(times):
        before = part.pid

        def started_again(before: int | None = before) -> bool:
            part.look()
            return part.pid not in {None, before}

        until(started_again, "another start")


def test_a_part_that_all_depends_on_is_given_up_with_its_last_words(folder: Path) -> None:
    part = Part("scheduler", ["part"], folder / "part.log")
    part.start()
    with pytest.raises(GaveUp, match=r"the scheduler ends again and again \(now with 1\)(?s:.*)the routes are wrong"):
        ends(part, 4)
    stop([part])


def test_one_that_the_others_can_go_on_without_is_not_given_up_and_told_once_for_each_fault(
    spared: Part, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends(spared, 5)
    said = capsys.readouterr().err
    assert said.count("WARNING: the notifier ends again and again (now with 1), and nobody is told") == 1
    assert "All else goes on" in said
    assert "the routes are wrong" in said
    (folder / "wrong").write_text("the disk is full")
    ends(spared, 2)
    assert capsys.readouterr().err.count("the disk is full") == 1


def test_it_is_told_when_that_one_runs_again(
    spared: Part, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(spared, 3)
    (folder / "well").touch()

    def runs() -> bool:
        spared.look()
        return (folder / "runs").exists()

    until(runs, "a start that goes well")
    monkeypatch.setattr(supervisor, "HEALTHY_S", 0.0)
    spared.look()
    spared.look()
    assert capsys.readouterr().err.count("the notifier runs again") == 1
