"""What comes out otherwise than a scenario expects is told, where it says so."""

import tomllib

import pytest

from gangline.cli.scenario_file import scenario
from gangline.simulator.scenario_check import check
from gangline.simulator.scenario_run import run

# One job runs, one waits behind it, one ends, one is refused as it should be.
SCENARIO = """
[nodes.node-0]

[jobs.runs]
gpus = 7
preemptible = false
running = { on = "node-0:0-6", since = "1h" }

[jobs.waits]
gpus = 8

[jobs.ends]
gpus = 1
works = "5s"

[jobs.large]
gpus = 800
rejected = "8 GPUs"
"""

WRONG = {
    'runs = ["waits"]': "waits is pending, not running",
    'waits = ["runs"]': "runs is running, not pending",
    'stops = ["runs"]': "runs is running, not stopping",
    'ended.ends = "failed"': "ends is succeeded, not failed",
    'where.runs = "node-0:1-7"': "runs is on node-0:0-6, not on node-0:1-7",
    'where.waits = "node-0"': "waits is on nowhere, it is pending",
    'victims = ["runs"]': "those told to give way are nobody",
    'reasons.runs = "service"': "runs was not told to give way",
    "preemptions.runs = 1": "runs was told to give way 0 times, not 1",
    "attempts.runs = 2": "runs has had 1 attempts, not 2",
    'why.waits = "no such words"': "'no such words' is not in what is said of waits",
    'causes.waits = "no such words"': "'no such words' is not in the cause",
    'order = ["waits", "ends"]': "they started in the order ends",
    'held.waits = "node-0"': "held for waits is nobody",
    'reserved.waits = "node-0"': "reserved for waits is nobody",
    'quarantined = ["node-0"]': "quarantined is nobody",
    'resumes.runs = "1m"': "runs resumes with 0 s done, not 60 s",
    'warned = ["runs"]': "those warned are nobody",
}


def told(text: str) -> list[str]:
    return [complaint.message for complaint in check(run(scenario(tomllib.loads(text))))]


def test_nothing_is_told_of_what_is_as_expected() -> None:
    assert told(SCENARIO + '[[expect]]\nruns = ["runs"]\nwaits = ["waits"]\nended.ends = "succeeded"\n') == []


@pytest.mark.parametrize("expected", WRONG)
def test_what_is_otherwise_is_told(expected: str) -> None:
    (message,) = told(f"{SCENARIO}[[expect]]\n{expected}\n")
    assert WRONG[expected] in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SCENARIO.replace("8 GPUs", "no such words"), "the refusal says otherwise"),
        (SCENARIO.replace('rejected = "8 GPUs"', ""), "this was rejected"),
        (SCENARIO + '[jobs.small]\ngpus = 0.1\nrejected = "anything"\n', "this was not refused, but accepted"),
        (SCENARIO + '[[events]]\nat = "1s"\ndo = "cordon"\nnode = "node-9"\n', "this was refused"),
    ],
)
def test_an_answer_that_is_otherwise_is_told(text: str, said: str) -> None:
    (message,) = told(text)
    assert said in message
