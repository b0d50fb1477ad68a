"""Commands against a running cluster of one machine: answers, refusals, output, outcomes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.invoke import Gangline
from tests.cli.running import Up, up

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.usefixtures("here")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("cluster") / "home", "--gpus", "2") as running:
        yield running


def submitted(gangline: Gangline, *words: object) -> dict[str, Any]:
    ran = gangline("submit", "--json", *words)
    assert ran.code == 0, ran.err
    said: dict[str, Any] = json.loads(ran.out)
    return said


def test_a_job_runs_from_submission_to_its_output(gangline: Gangline) -> None:
    said = submitted(gangline, "--gpus", 2, "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    assert said["answer"] == "JobAdmitted"
    assert said["decided_index"] > said["index"]
    job = said["job_id"]
    assert gangline("job", "wait", job, "--timeout", 60).code == 0
    assert sorted(gangline("job", "logs", "-f", job).out.splitlines()) == ["[0] rank 0 of 2", "[1] rank 1 of 2"]
    shown = json.loads(gangline("job", "show", job, "--json").out)
    kinds = [entry["kind"] for entry in shown["timeline"]]
    assert [kind for kind in kinds if kind != "exited"] == [
        "submitted",
        "admitted",
        "bound",
        "started",
        "attempt ended",
        "ended",
    ]


def test_a_submission_is_read_back_after_its_index(gangline: Gangline) -> None:
    said = submitted(gangline, "--", "true")
    ran = gangline("jobs", "--json", "--after", said["index"])
    assert said["job_id"] in [row["job_id"] for row in json.loads(ran.out)]


def test_people_are_told_the_job_and_where_it_stands_on_the_log(gangline: Gangline) -> None:
    ran = gangline("submit", "--", "true")
    assert ran.code == 0
    assert ran.out.startswith("job-")
    assert "recorded at" in ran.out
    assert "admitted at" in ran.out


def test_code_and_environment_reach_the_ranks(gangline: Gangline, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nprint(open('data.txt').read(), os.environ['EPOCHS'])\n")
    (tmp_path / "data.txt").write_text("seven")
    (tmp_path / "job.toml").write_text(
        f'command = ["{sys.executable}", "train.py"]\ncode = "."\nenv.EPOCHS = "1"\nresources.gpus = 1\n'
    )
    job = submitted(gangline, tmp_path / "job.toml", "--env", "EPOCHS=9")["job_id"]
    assert gangline("job", "wait", job, "--timeout", 60).code == 0
    assert gangline("job", "logs", job).out == "seven 9\n"
    shown = json.loads(gangline("job", "show", job, "--json").out)
    assert shown["job"]["name"] == "job"


def test_a_running_job_is_cancelled(gangline: Gangline) -> None:
    job = submitted(gangline, "--grace", "1s", "--", "sleep", "600")["job_id"]
    ran = gangline("job", "cancel", job, "--reason", "enough")
    assert ran.code == 0
    assert f"{job} cancelled at" in ran.out
    ran = gangline("job", "wait", job, "--timeout", 60)
    assert ran.code == 1
    assert "cancelled" in ran.out
    again = gangline("job", "cancel", job)
    assert again.code == 4
    assert "has already ended (cancelled)" in again.err


def test_a_waiting_job_says_what_it_waits_for(gangline: Gangline) -> None:
    holder = submitted(gangline, "--gpus", 2, "--", "sleep", "600")["job_id"]
    waiter = submitted(gangline, "--gpus", 1, "--", "true")
    shown = json.loads(gangline("job", "show", waiter["job_id"], "--json", "--after", waiter["index"]).out)
    assert "needs 1 free GPU" in shown["why"]
    assert gangline("job", "cancel", holder).code == 0
    assert gangline("job", "wait", waiter["job_id"], "--timeout", 60).code == 0


def test_cancelling_what_is_not_there_is_refused(gangline: Gangline) -> None:
    ran = gangline("job", "cancel", "job-aaaaaaaaaaaa")
    assert ran.code == 4
    assert "there is no job 'job-aaaaaaaaaaaa'" in ran.err


REFUSED: dict[str, tuple[list[object], list[str]]] = {
    "an unknown queue": (["--queue", "nowhere"], ["nowhere", "default"]),
    "more GPUs than there are": (["--gpus", 3], ["gpus is 3", "ask for at most 2"]),
    "an unknown GPU type": (["--gpu-type", "H999"], ["H999", "declared"]),
    "more memory than a node has": (["--memory", "900TiB"], ["memory"]),
    "more nodes than there are": (["--gpus", 2, "--nodes", 2], ["2 nodes"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_never_start_is_rejected_with_the_way_out(case: str, gangline: Gangline) -> None:
    words, parts = REFUSED[case]
    ran = gangline("submit", *words, "--", "true")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("gangline: rejected at ")
    assert [part for part in parts if part not in ran.err] == []
    assert len(ran.err.splitlines()) == 1


def test_a_rejection_is_json_too(gangline: Gangline) -> None:
    ran = gangline("submit", "--json", "--queue", "nowhere", "--", "true")
    assert ran.code == 4
    said = json.loads(ran.out)
    assert (said["answer"], said["key"], said["value"]) == ("JobRejected", "queue", "'nowhere'")


def test_a_command_that_does_not_exist_fails_at_once_and_is_not_tried_again(gangline: Gangline) -> None:
    job = submitted(gangline, "--", "no-such-program")["job_id"]
    ran = gangline("job", "wait", job, "--timeout", 60, "--json")
    assert ran.code == 1
    ended = json.loads(ran.out)
    assert ended["attempts"] == 1
    assert "'no-such-program' does not exist" in ended["cause"]


def test_a_rank_that_fails_again_and_again_ends_the_job(gangline: Gangline) -> None:
    job = submitted(gangline, "--retries", 1, "--", "sh", "-c", "echo trying; exit 3")["job_id"]
    ran = gangline("job", "wait", job, "--timeout", 60, "--json")
    assert (ran.code, json.loads(ran.out)["attempts"]) == (1, 2)
    followed = gangline("job", "logs", "-f", "--attempt", 1, job)
    assert followed.out.splitlines() == ["trying", "trying"]


def test_a_second_up_in_the_same_folder_is_refused(cluster: Up, gangline: Gangline) -> None:
    ran = gangline("up")
    assert ran.code == 4
    assert f"gangline already runs in {cluster.home} (process {cluster.process.pid})" in ran.err


def test_all_is_well_says_the_doctor(gangline: Gangline) -> None:
    ran = gangline("doctor", "--json")
    assert [one for one in json.loads(ran.out) if one["status"] != "ok" and one["what"] != "folder"] == []
    assert ran.code == 0


def test_a_part_that_dies_is_started_again(cluster: Up, gangline: Gangline) -> None:
    from tests.cli.running import kill, until

    before = cluster.children()
    parts = {"gangline.scheduler", "gangline.projections", "gangline.agents", "gangline.agents.notifier"}
    assert set(before) == parts
    for pid in before.values():
        kill(pid)
    until(
        lambda: set(cluster.children()) == set(before) and not set(cluster.children().values()) & set(before.values()),
        "restart",
    )
    job = submitted(gangline, "--timeout", 30, "--", "true")["job_id"]
    assert gangline("job", "wait", job, "--timeout", 60).code == 0
