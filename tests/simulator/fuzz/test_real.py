"""Randomised worlds on real logs: a scheduler's process, killed at any moment, decides what the core decides here."""

from pathlib import Path

import pytest

from gangline.simulator.fuzz.attempts import KAFKA_EVERY, SQLITE_EVERY, on_real_log
from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.real import run_on
from gangline.simulator.fuzz.scene import Violation
from tests.simulator.fuzz.test_worlds import SEEDS

REAL = range(0, SEEDS, SQLITE_EVERY)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [seed for seed in REAL if seed % KAFKA_EVERY])
def test_a_killed_process_decides_on_sqlite_what_the_core_decides(seed: int) -> None:
    assert on_real_log(seed, None) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [seed for seed in REAL if seed % KAFKA_EVERY == 0])
def test_a_killed_process_decides_on_kafka_what_the_core_decides(seed: int, kafka_bootstrap: str) -> None:
    assert on_real_log(seed, kafka_bootstrap) is None


def test_without_a_broker_a_world_on_kafka_fails_and_says_how_to_start_one() -> None:
    assert "local_kafka" in (on_real_log(0, None) or "")


@pytest.mark.slow
def test_a_process_that_decides_otherwise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The process is another one, so that the break is made here, in what it is compared with.
    monkeypatch.setattr("gangline.scheduler.rules.placement.grace_us", lambda *_: 77)
    with pytest.raises(Violation, match=r"^a_process_decides_the_same"):
        run_on(generate(3), f"sqlite:{tmp_path}/log", tmp_path)
