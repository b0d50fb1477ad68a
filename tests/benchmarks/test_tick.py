"""Rounds are timed at every size and in each case, under the names that programs read."""

import json

import pytest

from benchmarks import tick
from benchmarks.__main__ import main
from benchmarks.tick_world import GPUS, TickWorld
from gangline.events.policy import Policy, Queue

CASES = {"jobs_4000", "gang_512", "unschedulable", "reclaim"}


def test_the_cluster_is_full_and_jobs_wait() -> None:
    world = tick.busy_world(512, 100)
    assert world.allocated_milli >= 512 * 960
    assert 80 <= len(world.state.pending) <= 100  # the smallest still found room
    assert len(tick.churned(world, 5, 100)) == 5
    assert all(one.wall_s > 0 for one in world.took)


def test_every_round_counts_from_its_inputs_on() -> None:
    world = TickWorld(2, Policy(queues=(Queue(path="a"),)))
    before = len(world.took)
    world.submit([tick._one("a", GPUS)] * 3)
    world.tick()
    assert len(world.took) == before + 1
    assert len(world.running) == 2
    assert len(world.state.pending) == 1


@pytest.mark.slow
def test_every_size_and_case_is_a_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tick, "SIZES", ((512, 100, 100.0), (1_024, 200, 1_000.0)))
    monkeypatch.setattr(tick, "QUICK_ROUNDS", 5)
    assert main(["tick", "--quick", "--json"]) == 0
    figures = {figure["name"]: figure for figure in json.loads(capsys.readouterr().out)["figures"]}
    rounds = {f"tick.{percentile}_ms_{gpus}" for percentile in ("p50", "p99") for gpus in (512, 1_024)}
    assert set(figures) == rounds | {f"tick.{case}_s" for case in CASES}
    assert all(figure["value"] > 0 and "CPU time" in figure["reference"] for figure in figures.values())
    assert [figures[f"tick.p99_ms_{gpus}"]["goal"] for gpus in (512, 1_024)] == [100.0, 1_000.0]
    assert all(figures[f"tick.{case}_s"]["goal"] == 1.0 for case in CASES)


def test_the_sizes_measured_are_those_that_goals_are_set_for() -> None:
    assert tick.SIZES == ((4_096, 10_000, 100.0), (40_960, 50_000, 1_000.0))
    assert tick.ROUNDS == 200
