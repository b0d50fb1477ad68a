"""Runs the command line in this process, as a user would in a shell."""

import json
import sys
from typing import Any, NamedTuple

import pytest

from gangline.cli import main


class Ran(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Gangline:
    """Runs commands and keeps what they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: object) -> Ran:
        self._monkeypatch.setattr(sys, "argv", ["gangline", *(str(word) for word in words)])
        self._capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        said = self._capsys.readouterr()
        assert isinstance(code, int | None)
        return Ran(code or 0, said.out, said.err)


def document(gangline: Gangline, *words: object) -> Any:  # noqa: ANN401 - JSON
    """Return what a command prints with --json."""
    ran = gangline(*words, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)
