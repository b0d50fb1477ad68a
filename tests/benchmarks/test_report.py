"""Figures are judged and shown as they are, and the command line says what it does not know."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.figures import Figure, interleaved
from benchmarks.machine import this_commit, this_machine
from benchmarks.report import as_json, as_table, number

HIGHER = Figure(name="a.ratio", value=0.71, unit="ratio", goal=0.6, better="higher", reference="bare")
LOWER = Figure(name="a.worst_s", value=0.3, unit="s", goal=0.25, better="lower", reference="disk")
ABSENT = Figure(name="a.kafka", value=None, unit="ratio", goal=0.8, better="higher", reference="no Java here")


def test_a_goal_is_met_on_its_better_side() -> None:
    assert [figure.met for figure in (HIGHER, LOWER, ABSENT)] == [True, False, None]


def test_json_holds_machine_commit_and_every_figure() -> None:
    report = json.loads(as_json(this_machine(), this_commit(), [HIGHER, LOWER, ABSENT]))
    assert set(report) == {"machine", "commit", "figures"}
    assert {"cpu", "cores", "memory_bytes", "kernel", "python"} == set(report["machine"])
    assert report["figures"][0] == {
        "name": "a.ratio",
        "value": 0.71,
        "unit": "ratio",
        "goal": 0.6,
        "better": "higher",
        "reference": "bare",
        "met": True,
    }
    assert [figure["met"] for figure in report["figures"]] == [True, False, None]


def test_the_table_shows_what_is_not_met_and_what_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    as_table(this_machine(), this_commit(), [HIGHER, LOWER, ABSENT])
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in shown[1:3]] == ["yes", "NO"]
    assert "not measured" in shown[3]
    assert this_commit() in shown[-1]


def test_numbers_are_rounded_for_people() -> None:
    assert [number(value) for value in (None, 0.0123456, 3.14159, 1234567.8)] == ["-", "0.0123", "3.14", "1,234,568"]


def test_both_sides_are_measured_in_turns() -> None:
    turns: list[str] = []
    values = iter(range(100))

    def side(name: str) -> float:
        turns.append(name)
        return float(next(values))

    ours, theirs = interleaved(lambda: side("a"), lambda: side("b"), rounds=3)
    assert turns == ["a", "b"] * 4
    assert (ours, theirs) == (4.0, 5.0)


def test_without_a_name_the_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "log " in capsys.readouterr().out


def test_an_unknown_name_exits_2_and_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lgo"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "'lgo'" in shown.err
    assert "log" in shown.err.partition("there are")[2]


@pytest.mark.slow
def test_the_log_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "--quick", "--json"]) == 0
    figures = {figure["name"]: figure for figure in json.loads(capsys.readouterr().out)["figures"]}
    expected = {"log.fold_per_s", "log.sqlite_ratio", "log.sqlite_contended_per_s", "log.sqlite_contended_worst_s"}
    assert expected | {"log.kafka_ratio"} == set(figures)
    assert figures["log.kafka_ratio"]["value"] or "needs" in figures["log.kafka_ratio"]["reference"]
    assert all(figures[name]["value"] > 0 for name in expected)
