"""An elastic training on real agents grows when a GPU becomes idle, and goes on from its checkpoint with more ranks."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.commands import Commands, new_meta
from gangline.cli.place import Place
from gangline.events.control import ActivatePolicy
from gangline.events.decisions import PolicyActivated
from gangline.events.policy import Policy
from gangline.events.types import SECOND_US
from tests.cli.invoke import Gangline
from tests.cli.running import until, up

TRAIN = Path(__file__).parent.parent.parent / "examples/digits/train.py"

QUICK = Policy(
    elastic_interval_us=SECOND_US,
    min_runtime_us=0,
    shield_step_us=0,
    preemptions_max=1,
    preemption_grace_us=20 * SECOND_US,
)
"""By which a gang may be resized at once, and once."""


@pytest.fixture
def gangline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gangline:
    return Gangline(monkeypatch, capsys)


def activate(home: Path, policy: Policy) -> None:
    place = Place(home)
    log = place.open_log()
    try:
        answered = Commands(log, home / "snapshots").send(
            ActivatePolicy(meta=new_meta(), policy=policy), key="policy", timeout_s=20
        )
        assert isinstance(answered.answer, PolicyActivated), answered.answer
    finally:
        log.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_training_resumes_with_two_ranks_what_it_saved_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gangline: Gangline
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(TRAIN, code)
    with up(tmp_path / "home", "--gpus", "2") as running:
        monkeypatch.setenv("GANGLINE_HOME", str(running.home))
        activate(running.home, QUICK)

        def ran(*words: object) -> str:
            done = gangline(*words)
            assert done.code == 0, done.err
            return done.out

        def show(job_id: str) -> dict[str, Any]:
            shown: dict[str, Any] = json.loads(ran("job", "show", "--json", job_id))
            return shown

        other = json.loads(ran("submit", "--json", "--", "sleep", "600"))["job_id"]
        until(lambda: show(other)["job"]["state"] == "running", "the other job runs")
        words = ["--epochs", "12", "--checkpoint-every", "20", "--pause", "0.02"]
        limits = ["--min-gpus", "1", "--max-gpus", "2"]
        submit = ["submit", "--json", *limits, "--code", str(code), "--", sys.executable, "train.py", *words]
        job_id = json.loads(ran(*submit))["job_id"]
        until(lambda: any(one["state"] == "committed" for one in show(job_id)["checkpoints"]), "a checkpoint")
        assert "1 (1-2)" in ran("jobs")
        ran("job", "cancel", other)
        until(lambda: len(show(job_id)["attempts"]) == 2, "it grows")
        assert "2 (1-2)" in ran("jobs")
        ran("job", "wait", "--timeout", "200", job_id)
        shown = show(job_id)
    assert [one["world_size"] for one in shown["attempts"]] == [1, 2]
    first, second = shown["attempts"]
    assert (first["state"], first["stop_reason"]) == ("preempted", "grow")
    assert second["outcome"] == "succeeded"
    assert second["resume_step"] >= 20
    assert shown["job"]["preemptions"] == 1
