"""Operators and users act on nodes, jobs and queues of a running cluster; each command has an answer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.cli.up import node_id
from tests.cli.invoke import Gangline, document
from tests.cli.running import Up, until, up

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.usefixtures("here")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("operated") / "home", "--gpus", "2") as running:
        yield running


def submitted(gangline: Gangline, *words: object) -> str:
    ran = gangline("submit", *words[:-2], "--grace", "1s", "--json", "--", *words[-2:])
    assert ran.code == 0, ran.err
    return str(json.loads(ran.out)["job_id"])


def state_of(gangline: Gangline, job: str) -> str:
    return str(document(gangline, "job", "show", job)["job"]["state"])


def node_state(gangline: Gangline) -> str:
    (node,) = document(gangline, "nodes")
    return str(node["state"])


def test_a_node_is_cordoned_and_used_again(gangline: Gangline) -> None:
    said = document(gangline, "node", "cordon", node_id(), "--reason", "its fan is loud")
    assert said["answer"] == "CommandAccepted"
    assert gangline("jobs", "--after", said["decided_index"]).code == 0
    assert node_state(gangline) == "cordoned"
    assert "its fan is loud" in gangline("nodes").out
    again = gangline("node", "cordon", node_id())
    assert again.code == 4
    assert f"is cordoned already (its fan is loud): `gangline node uncordon {node_id()}`" in again.err
    assert gangline("node", "cordon", node_id(), "--reason", "it smokes").code == 0
    job = submitted(gangline, "sleep", "600")
    assert state_of(gangline, job) == "pending"
    assert gangline("node", "uncordon", node_id()).code == 0
    until(lambda: state_of(gangline, job) == "running", "a start on the node that is used again")
    assert gangline("job", "cancel", job).code == 0
    assert gangline("job", "wait", job, "--timeout", 60).code == 1


def test_a_drain_requeues_what_runs_and_leaves_the_node_empty(gangline: Gangline) -> None:
    job = submitted(gangline, "sleep", "600")
    until(lambda: state_of(gangline, job) == "running", "a start")
    ran = gangline("node", "drain", node_id(), "--reason", "a new kernel")
    assert ran.code == 0
    assert "nothing new starts there" in ran.out
    until(lambda: node_state(gangline) == "drained", "the drain")
    (row,) = [row for row in document(gangline, "jobs") if row["job_id"] == job]
    assert (row["state"], row["preemptions"], row["failures_in_row"]) == ("pending", 1, 0)
    assert gangline("node", "uncordon", node_id()).code == 0
    until(lambda: state_of(gangline, job) == "running", "the next attempt")
    assert gangline("job", "cancel", job).code == 0
    assert gangline("job", "wait", job, "--timeout", 60).code == 1


def test_a_node_is_examined_by_its_agent(gangline: Gangline) -> None:
    ran = gangline("node", "check", node_id())
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{node_id()} is healthy: ")
    assert document(gangline, "node", "check", node_id())["healthy"] is True


def test_a_job_is_held_released_retried_and_given_another_priority(gangline: Gangline) -> None:
    job = submitted(gangline, "sleep", "600")
    until(lambda: state_of(gangline, job) == "running", "a start")
    assert gangline("job", "hold", job[:12], "--reason", "later").code == 0
    until(lambda: state_of(gangline, job) == "pending", "the requeue")
    assert " held " in gangline("jobs", "--state", "held").out
    assert "is held" in document(gangline, "job", "show", job)["why"]
    assert f"stays held, and starts only after `gangline job release {job}`" in gangline("job", "retry", job).out
    assert document(gangline, "job", "release", job)["answer"] == "CommandAccepted"
    until(lambda: state_of(gangline, job) == "running", "the second attempt")
    assert gangline("job", "retry", job).code == 0
    until(lambda: document(gangline, "job", "show", job)["job"]["attempts"] == 3, "the third attempt")
    assert gangline("job", "reprioritise", job, "7").code == 0
    until(lambda: document(gangline, "job", "show", job)["job"]["priority"] == 7, "the new priority")
    assert gangline("job", "cancel", job).code == 0
    assert gangline("job", "wait", job, "--timeout", 60).code == 1


def test_a_clone_asks_for_the_same_and_may_change_it(gangline: Gangline) -> None:
    job = submitted(gangline, "--name", "first", "--priority", "3", "sleep", "x")
    assert gangline("job", "wait", job, "--timeout", 60).code == 1
    new = document(gangline, "job", "clone", job, "--name", "second")
    assert new["clone_of"] == job
    until(lambda: gangline("job", "show", new["job_id"]).code == 0, "the clone in the tables")
    shown = document(gangline, "job", "show", new["job_id"])["job"]
    assert (shown["name"], shown["priority"], shown["spec"]["command"]) == ("second", 3, ["sleep", "x"])


def test_a_clone_keeps_every_option_of_the_job(gangline: Gangline) -> None:
    flags = (
        "--held --gpus 2 --cpus 0.1 --memory 1MiB --max-runtime 2h --retries 1 --env A=1 --topology-preferred node "
        "--not-preemptible --data 1GiB --notify http://127.0.0.1:9/x --checkpoints /kept "
        "--gpu-type declared --nodes 1"
    )
    job = submitted(gangline, *flags.split(), "sleep", "600")
    new = document(gangline, "job", "clone", job, "--held")["job_id"]
    until(lambda: gangline("job", "show", new).code == 0, "the clone in the tables")
    specs = [document(gangline, "job", "show", one)["job"]["spec"] for one in (job, new)]
    assert specs[0] == specs[1]
    assert specs[0]["data_bytes"] == 1 << 30
    for one in (job, new):
        assert gangline("job", "cancel", one).code == 0


ROLES = """
command = ["sh", "-c", "echo learner $RANK"]
grace = "1s"
[resources]
gpus = 1
cpus = 0.1
[roles.actor]
ranks = 2
cpus = 0.1
command = ["sh", "-c", "echo actor $RANK"]
"""


def test_the_output_of_ranks_without_a_gpu_is_printed_too(gangline: Gangline, tmp_path: Path) -> None:
    spec = tmp_path / "roles.toml"
    spec.write_text(ROLES)
    for asked, said in (
        ([spec], ["[0] learner 0", "[1] actor 1", "[2] actor 2"]),
        (["--gpus", "0", "--cpus", "0.1", "--", "echo", "no GPU"], ["no GPU"]),
    ):
        ran = gangline("submit", "--json", *asked)
        assert ran.code == 0, ran.err
        job = json.loads(ran.out)["job_id"]
        assert gangline("job", "wait", job, "--timeout", 60).code == 0
        assert gangline("job", "logs", job).out.splitlines() == said


def test_the_tree_of_queues_is_changed_one_by_one(gangline: Gangline) -> None:
    queue = document(gangline, "queue", "set", "org", "--guarantee", "2")
    assert queue["answer"] == "CommandAccepted"
    assert gangline("queue", "set", "org/a", "--guarantee", "declared=1", "--ceiling", "2", "--weight", "2").code == 0
    until(lambda: "org/a" in gangline("queues").out, "the queue")
    ran = gangline("queue", "set", "org/b", "--guarantee", "2")
    assert ran.code == 4
    assert "are guaranteed 3 GPUs" in ran.err
    assert gangline("queue", "remove", "org").code == 4
    assert gangline("queue", "remove", "org/a").code == 0
    assert gangline("queue", "remove", "org").code == 0


REFUSED: dict[str, tuple[list[object], int, str]] = {
    "an unknown node": (["node", "cordon", "nowhere"], 4, "there is no node 'nowhere': those there are: "),
    "a drain of an unknown node": (["node", "drain", "nowhere"], 4, "there is no node 'nowhere'"),
    "a check of an unknown node": (["node", "check", "nowhere"], 4, "there is no node 'nowhere'"),
    "an uncordon of a node in use": (["node", "uncordon", node_id()], 4, "neither cordoned nor drained"),
    "an unknown job": (["job", "hold", "job-aaaaaaaaaaaa"], 4, "`gangline jobs` lists those there are"),
    "the beginning of no job": (["job", "release", "job-99"], 3, "there is no job 'job-99'"),
    "a clone of no job": (["job", "clone", "job-99"], 3, "there is no job 'job-99'"),
    "a priority beyond the bounds": (["job", "reprioritise", "job-aaaaaaaaaaaa", "1" * 12], 2, "32 bits"),
    "a clone's priority beyond the bounds": (
        ["job", "clone", "job-aaaaaaaaaaaa", "--priority", "1" * 12],
        2,
        "--priority: this is 111,111,111,111, but has to be a number of 32 bits",
    ),
    "a quota of a type without a number": (["queue", "set", "a", "--ceiling", "H100="], 2, "--ceiling H100=: write a"),
    "an orphan": (["queue", "set", "a/b"], 4, "'a/b' is an orphan"),
    "a guarantee that is no number": (["queue", "set", "a", "--guarantee", "much"], 2, "--guarantee much"),
    "a guarantee of less than nothing": (
        ["queue", "set", "a", "--guarantee", "-0.5"],
        4,
        "guarantee of -0.5 GPUs: name 0",
    ),
    "a guarantee beyond any cluster": (["queue", "set", "a", "--guarantee", "1e30"], 2, "at most 1,000,000 GPUs"),
    "a weight that is no number": (["queue", "set", "a", "--weight", "1.5"], 2, "--weight 1.5"),
    "a weight beyond 64 bits": (["queue", "set", "a", "--weight", "9" * 20], 2, "name at most 2,147,483,647"),
    "a weight of thousands of digits": (["queue", "set", "a", "--weight", "9" * 5000], 2, "name at most 2,147,483,647"),
    "an unknown queue": (["queue", "remove", "nowhere"], 4, "there is no queue 'nowhere'"),
    "the last queue": (["queue", "remove", "default"], 4, ": "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses_with_the_way_out(case: str, gangline: Gangline) -> None:
    words, code, text = REFUSED[case]
    ran = gangline(*words)
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
