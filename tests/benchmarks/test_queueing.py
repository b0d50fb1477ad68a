"""The queueing experiment checks its references, and its figures have the names that programs read."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from benchmarks import queueing
from benchmarks.__main__ import main
from benchmarks.options import TRACES
from benchmarks.queueing_reference import by_duration

PARTS = {"mean_s", "p99_s", "gang_longest_s"}
NAMES = {f"queueing.{run}_{part}" for run in ("fifo", "sjf", "default", "teams") for part in PARTS}
DEFAULT = {"queueing.default_preemptions_per_job", "queueing.default_preemptions_most", "queueing.wall_s"}


def trace(folder: Path, *extra: str) -> Path:
    """Write jobs of two teams that do not all fit at once on two nodes, the longest first."""
    begin = datetime(2017, 9, 1)  # noqa: DTZ001 - the trace names no zone
    sizes = (1, 2, 8, 16, 4)
    rows = [
        f"{begin + timedelta(seconds=17 * number)},{900 - 30 * number}.0,{sizes[number % 5]},0,team-{number % 2}"
        for number in range(30)
    ]
    path = folder / "philly.csv"
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows, *extra]) + "\n")
    return path


def test_every_run_is_reported_and_the_strict_orders_agree_with_their_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queueing", "--trace", str(trace(tmp_path)), "--nodes", "2", "--divide", "3", "--json"]) == 0
    shown = capsys.readouterr()
    figures = {figure["name"]: figure for figure in json.loads(shown.out)["figures"]}
    assert set(figures) == NAMES | DEFAULT
    assert figures["queueing.fifo_mean_s"]["value"] > figures["queueing.sjf_mean_s"]["value"] > 0
    assert {name: one["goal"] for name, one in figures.items() if one["goal"] is not None} == {
        "queueing.default_mean_s": 300.0,
        "queueing.default_p99_s": 2_000.0,
        "queueing.default_gang_longest_s": 3_600.0,
        "queueing.default_preemptions_per_job": 0.15,
        "queueing.default_preemptions_most": 10.0,
        "queueing.teams_mean_s": 550.0,
        "queueing.wall_s": 60.0,
    }
    assert shown.err.count("starts are those of an independent program") == 2


def test_starts_that_differ_from_the_reference_stop_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queueing, "by_submission", by_duration)
    assert main(["queueing", "--trace", str(trace(tmp_path)), "--nodes", "2"]) == 1
    assert "the experiment is wrong" in capsys.readouterr().err


def test_a_bad_row_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = trace(tmp_path, "2017-10-09 07:01:55,1.0,1000000,1.0,team-0")
    assert main(["queueing", "--trace", str(bad)]) == 2
    assert "philly.csv, row 32: num_gpus is '1000000'" in capsys.readouterr().err


def test_without_a_trace_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TRACES, raising=False)
    assert main(["queueing"]) == 3
    assert f"--trace, or its folder with {TRACES}" in capsys.readouterr().err
