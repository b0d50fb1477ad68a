"""Submissions go through a scheduler's process, and what is measured has the names that programs read."""

import json

import pytest

from benchmarks.__main__ import main


@pytest.mark.slow
def test_submissions_are_measured_one_by_one_and_in_batches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.launches.QUICK_SINGLE", 20)
    monkeypatch.setattr("benchmarks.launches.QUICK_BATCHES", 1)
    monkeypatch.setattr("benchmarks.launches.WARM_UP", 1)
    assert main(["launches", "--quick", "--json"]) == 0
    figures = {figure["name"]: figure for figure in json.loads(capsys.readouterr().out)["figures"]}
    assert set(figures) == {"launches.single_per_s", "launches.batched_per_s"}
    assert all(figure["value"] > 0 and "fdatasync p50" in figure["reference"] for figure in figures.values())
    assert figures["launches.single_per_s"]["goal"] in {200.0, None}
    assert figures["launches.batched_per_s"]["goal"] == 2_000.0
