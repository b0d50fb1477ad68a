"""Fixtures for tests of the command line."""

from pathlib import Path

import pytest

from tests.cli.invoke import Gangline


@pytest.fixture
def gangline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gangline:
    return Gangline(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for gangline that does not exist yet, the only one that commands see."""
    for name in ("GANGLINE_LOG", "GANGLINE_SQL", "GANGLINE_OBJECTS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    monkeypatch.setenv("GANGLINE_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder
