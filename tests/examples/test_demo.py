"""The demo does what the README promises, on both logs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import require_java

ROOT = Path(__file__).parent.parent.parent


def play(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/digits/demo.py", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_rank_costs_no_more_than_the_steps_since_its_checkpoint() -> None:
    told = play()
    assert "resumed from step" in told
    assert "requeued" in told


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_is_the_same_on_kafka() -> None:
    require_java()
    told = play("--log", "kafka")
    assert "resumed from step" in told
    assert "kafka://" in told
