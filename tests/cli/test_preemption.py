"""A borrower gives way on a real cluster: it saves in its grace, waits, resumes where it stood, and its user hears."""

import json
from pathlib import Path

import pytest

from tests.agents.notifier.receiver import Receiver
from tests.cli.invoke import Gangline, document
from tests.cli.running import until, up

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

POLICY = """\
[policy]
room_interval = "1s"
reclaim_after = "0s"
reclaim_min_runtime = "0s"
reclaim_interval = "1s"

[queues.lab]
guarantee = 1

[queues.guest]
guarantee = 0
"""

TRAINS = """\
import os, signal, sys, time
import torch
import gangline

told_to_stop = False

def stop(*_):
    global told_to_stop
    told_to_stop = True

signal.signal(signal.SIGTERM, stop)
gangline.init()
checkpointer = gangline.Checkpointer()
state = {"weight": torch.zeros(1, dtype=torch.int64)}
resumed = checkpointer.resume(state)
step = resumed.step if resumed else 0
print("began at", step, "with", state["weight"].item(), flush=True)
while not (resumed and os.path.exists(sys.argv[1])):
    step += 1
    state["weight"] += 1
    time.sleep(0.02)
    if told_to_stop:
        checkpointer.save(state, step=step)
        print("saved", step, flush=True)
        sys.exit(0)
print("ended at", step, "with", state["weight"].item(), flush=True)
"""


def submitted(gangline: Gangline, *words: object) -> str:
    ran = gangline("submit", "--json", *words)
    assert ran.code == 0, ran.err
    return str(json.loads(ran.out)["job_id"])


def test_a_borrower_gives_way_saves_waits_and_resumes_and_its_user_hears_of_each(
    home: Path, gangline: Gangline, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    (tmp_path / "policy.toml").write_text(POLICY)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAINS)
    with Receiver() as hook, up(home, "--gpus", "1"):
        assert gangline("policy", "activate", tmp_path / "policy.toml").code == 0
        guest_words = ("--queue", "guest", "--name", "guest", "--grace", "60s", "--code", code, "--notify", hook.url)
        guest = submitted(gangline, *guest_words, "--", "python", "train.py", go)
        until(lambda: "began at 0 with 0" in gangline("job", "logs", guest).out, "the guest's start")

        lab_words = ("--queue", "lab", "--name", "lab", "--notify", hook.url)
        lab = submitted(gangline, *lab_words, "--", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done")
        until(lambda: document(gangline, "job", "show", lab)["job"]["state"] == "running", "the lab's start")
        shown = document(gangline, "job", "show", guest)
        assert (shown["job"]["state"], shown["job"]["preemptions"], shown["job"]["failures_in_row"]) == (
            "pending",
            1,
            0,
        )
        (attempt,) = shown["attempts"]
        assert (attempt["stop_reason"], attempt["stop_claimant"], attempt["outcome"]) == ("reclaim", lab, None)
        (checkpoint,) = shown["checkpoints"]
        assert checkpoint["state"] == "committed"

        go.touch()
        assert gangline("job", "wait", lab, "--timeout", 60).code == 0
        assert gangline("job", "wait", guest, "--timeout", 60).code == 0
        step = checkpoint["step"]
        lines = gangline("job", "logs", guest, "--attempt", 2).out.splitlines()
        assert lines[0] == f"began at {step} with {step}"
        ended = lines[1].split()
        assert ended[2] == ended[4], "a step was lost or done twice"
        until(lambda: len(hook.got) == 6, "all messages")
    of_guest = [one for one in hook.got if one["job_id"] == guest]
    assert [one["kind"] for one in of_guest] == ["started", "preempted", "started", "ended"]
    assert (of_guest[1]["reason"], of_guest[2]["resume_step"], of_guest[3]["outcome"]) == ("reclaim", step, "succeeded")
    assert lab in of_guest[1]["text"]
    assert hook.kinds("lab") == ["started", "ended"]
