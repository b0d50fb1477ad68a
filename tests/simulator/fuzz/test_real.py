"""Randomised worlds on real logs: a scheduler's process, killed at any moment, decides what the core decides here."""

from pathlib import Path

import pytest

from gangline.simulator.fuzz.__main__ import main
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


@pytest.mark.slow
def test_without_a_broker_a_world_of_kafka_runs_on_sqlite_which_is_said_and_counted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "2"]) == 0
    said = capfd.readouterr().out
    before, _, summary = said.partition("2 worlds in ")
    assert "1 world (every seed that 200 divides) of 2 will run on SQLite instead of Kafka" in before
    assert "local_kafka.py" in before
    assert ", 1 on SQLite instead of Kafka, 0 failed" in summary


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--seeds", "1", "--kafka", "127.0.0.1:1"], "no Kafka broker answers at 127.0.0.1:1"),
        (["--seeds", "1", "--kafka", "nowhere"], "name a broker as HOST:PORT"),
        (["--seeds", "0"], "--seeds is 0: name 1 or more"),
        (["--replay", "nowhere.json"], "there is no file nowhere.json"),
    ],
)
def test_a_wrong_call_is_refused_before_any_world_runs(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_decides_otherwise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The process is another one, so that the break is made here, in what it is compared with.
    monkeypatch.setattr("gangline.scheduler.rules.placement.grace_us", lambda *_: 77)
    with pytest.raises(Violation, match=r"^a_process_decides_the_same"):
        run_on(generate(3), f"sqlite:{tmp_path}/log", tmp_path)
