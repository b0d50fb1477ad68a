"""The example: it learns, it resumes exactly, and it survives a killed rank under plain torchrun."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gangline.schemas.spool import read_spool, spool_path

TRAIN = Path(__file__).parents[2] / "examples" / "digits" / "train.py"
DEADLINE_S = 90


def environ() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GANGLINE_", "TORCHELASTIC_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    return kept | {"OMP_NUM_THREADS": "1"}


def train(folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(TRAIN), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ(), capture_output=True, text=True, check=True, timeout=DEADLINE_S
    ).stdout


def losses(folder: Path, attempt: int) -> dict[int, float]:
    path = spool_path(folder / "gangline-runs" / "train" / f"attempt-{attempt}" / "spool", 0)
    return {point.step: point.values["loss"] for point in read_spool(path).points if "loss" in point.values}


@pytest.mark.slow
@pytest.mark.timeout(3 * DEADLINE_S)
def test_a_resumed_training_repeats_the_uninterrupted_one_exactly(tmp_path: Path) -> None:
    train(tmp_path, "--epochs", "3", "--checkpoint-every", "9")
    for manifest in (tmp_path / "gangline-runs" / "train" / "attempt-1").glob("step-*/manifest.json"):
        if manifest.parent.name not in {"step-9", "step-18"}:
            manifest.unlink()
    output = train(tmp_path, "--epochs", "3", "--checkpoint-every", "9")
    assert "resumed from step 18\n" in output
    whole, resumed = losses(tmp_path, 1), losses(tmp_path, 2)
    assert sorted(whole) == list(range(1, 67))
    assert resumed == {step: loss for step, loss in whole.items() if step > 18}


def torchrun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    # Launched anew after a failure: a restart by torchrun itself reuses its store, whose addresses of the ranks before
    # a rank may read before they are replaced (pytorch/pytorch#135712, #167288).
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += [str(TRAIN), "--epochs", "12", "--checkpoint-every", "20", *arguments]
    with (folder / "err").open("w") as errors:
        return subprocess.Popen(command, cwd=folder, env=environ(), stdout=subprocess.PIPE, stderr=errors, text=True)


@pytest.mark.slow
@pytest.mark.timeout(3 * DEADLINE_S)
def test_under_torchrun_a_killed_rank_costs_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    first_attempt = tmp_path / "gangline-runs" / "train" / "attempt-1"
    with torchrun(tmp_path, "--pause", "0.05") as first:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not list(first_attempt.glob("step-*/manifest.json")):
                assert time.monotonic() < deadline
                assert first.poll() is None, (tmp_path / "err").read_text()
                time.sleep(0.02)
            ranks = [child for child in psutil.Process(first.pid).children() if str(TRAIN) in child.cmdline()]
            os.kill(next(child.pid for child in ranks if child.environ()["RANK"] == "1"), signal.SIGKILL)
            assert "accuracy" not in first.communicate(timeout=DEADLINE_S)[0]
        finally:
            first.terminate()  # torchrun then ends its ranks
    with torchrun(tmp_path) as second:
        try:
            output, _ = second.communicate(timeout=DEADLINE_S)
        finally:
            second.terminate()
    assert second.returncode == 0, (tmp_path / "err").read_text()
    resumed = re.search(r"^resumed from step (\d+)$", output, re.MULTILINE)
    accuracy = re.search(r"^accuracy (0\.\d+)$", output, re.MULTILINE)
    assert resumed is not None
    assert accuracy is not None
    assert int(resumed[1]) >= 20
    assert float(accuracy[1]) >= 0.95
    assert min(losses(tmp_path, 2)) == int(resumed[1]) + 1
