"""Fixtures for tests of the command line."""

from pathlib import Path

import pytest

from tests.cli.invoke import Gangline
from tests.cli.running import Up


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


@pytest.fixture
def here(cluster: Up, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands see the cluster that the test's module runs as its fixture `cluster`."""
    assert home != cluster.home
    monkeypatch.setenv("GANGLINE_HOME", str(cluster.home))
