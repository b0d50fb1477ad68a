"""A benchmark's own options are on its command line alone, and reach it by name."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import benchmarks.__main__ as command
from benchmarks.figures import Figure
from benchmarks.options import TRACES, Option, seeds, trace_file
from gangline.schemas.errors import GanglineError


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Enter two benchmarks, one with an option, and return what they are called with."""
    calls: list[dict[str, Any]] = []

    def figures(**options: Any) -> Iterator[Figure]:  # noqa: ANN401 - whatever the command line gives
        calls.append(options)
        if options.get("nodes") == 13:
            raise GanglineError("row 3 of nodes.csv: no model")
        yield Figure(name="x.y", value=1.0, unit="s", goal=None, better="lower", reference="")

    for name, options in (("plain", ()), ("rich", (Option("nodes", int, 7, "how many"),))):
        module = ModuleType(f"benchmarks_{name}", f"Measure {name}.")
        vars(module).update(figures=figures, OPTIONS=options)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    names = {"plain": "benchmarks_plain", "rich": "benchmarks_rich"}
    monkeypatch.setattr(command, "BENCHMARKS", names)
    return calls


def test_an_option_reaches_its_benchmark(given: list[dict[str, Any]]) -> None:
    assert command.main(["rich", "--nodes", "9", "--quick", "--json"]) == 0
    assert given == [{"quick": True, "nodes": 9}]


def test_what_is_not_given_is_the_default_and_all_takes_defaults(given: list[dict[str, Any]]) -> None:
    assert command.main(["rich"]) == 0
    assert command.main(["all"]) == 0
    assert given == [{"quick": False, "nodes": 7}, {"quick": False}, {"quick": False, "nodes": 7}]


def test_an_option_of_another_benchmark_is_a_usage_error(given: list[dict[str, Any]]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["plain", "--nodes", "9"])
    assert (exit_.value.code, given) == (2, [])


@pytest.mark.usefixtures("given")
def test_help_shows_the_options_of_the_named_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["rich", "--help"])
    assert "how many" in capsys.readouterr().out


@pytest.mark.usefixtures("given")
def test_what_cannot_be_read_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["rich", "--nodes", "13"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1] == "error: row 3 of nodes.csv: no model"


@pytest.mark.parametrize(
    ("text", "expected"), [("42-44", (42, 43, 44)), ("1,5, 9", (1, 5, 9)), ("7", (7,)), ("3,1-3", (3, 1, 2))]
)
def test_seeds_are_ranges_and_lists(text: str, expected: tuple[int, ...]) -> None:
    assert seeds(text) == expected


@pytest.mark.parametrize("text", ["", "a", "5-3", "1-2-3", "-1", "1-99999"])
def test_what_is_no_seed_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 42-51"):
        seeds(text)


def test_a_trace_is_found_by_option_or_else_in_the_folder_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACES, "traces")
    assert trace_file(None, "pods.csv") == Path("traces/pods.csv")
    assert trace_file(Path("own.csv"), "pods.csv") == Path("own.csv")
    monkeypatch.delenv(TRACES)
    assert trace_file(None, "pods.csv") is None
