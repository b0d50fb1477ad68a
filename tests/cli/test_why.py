"""A user asks a running cluster why a job waits, runs, gave way or ended, now and then; each answer is also JSON."""

import json
from collections.abc import Iterator

import pytest

from gangline.cli.up import node_id
from tests.cli.invoke import Gangline, document
from tests.cli.running import Up, until, up

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.usefixtures("here")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("asked") / "home", "--gpus", "2") as running:
        yield running


def submitted(gangline: Gangline, gpus: int, *words: object) -> str:
    ran = gangline("submit", "--gpus", gpus, *words, "--grace", "1s", "--json", "--", "sleep", "600")
    assert ran.code == 0, ran.err
    return str(json.loads(ran.out)["job_id"])


@pytest.fixture
def runs(gangline: Gangline) -> Iterator[str]:
    """Give a job that has the whole node for an hour at most."""
    job = submitted(gangline, 2, "--max-runtime", "1h")
    until(lambda: document(gangline, "why", job)["standing"] == "running", "a start")
    yield job
    gangline("job", "cancel", job)
    assert gangline("job", "wait", job, "--timeout", 60).code == 1


@pytest.fixture
def waits(gangline: Gangline, runs: str) -> Iterator[str]:
    """Give a job for which there is no room."""
    assert runs
    job = submitted(gangline, 1)
    yield job
    gangline("job", "cancel", job)
    assert gangline("job", "wait", job, "--timeout", 60).code == 1


def test_a_waiting_job_is_told_what_holds_it_and_what_changes_that(gangline: Gangline, runs: str, waits: str) -> None:
    ran = gangline("why", waits)
    assert ran.code == 0, ran.err
    assert "it needs 1 free GPU on one node" in ran.out
    assert f"when {runs} ends, expected in 59 min" in ran.out
    said = document(gangline, "why", waits[:12])
    assert (said["standing"], said["rule"], said["nodes"][0]["kind"]) == ("pending", "nodes", "too_full")
    assert said["change"]["subjects"] == [runs]


def test_a_running_job_is_told_why_it_was_placed_where_it_is(gangline: Gangline, runs: str) -> None:
    said = document(gangline, "why", runs)
    assert f"{node_id()} was the only node that could hold it" in " ".join(said["placed"])
    assert [one["decision"] for one in said["history"]] == ["JobAdmitted", "GangBound"]


def test_a_cordoned_node_is_counted_and_uncordoning_it_is_the_way_out(gangline: Gangline) -> None:
    assert gangline("node", "cordon", node_id(), "--reason", "its fan is loud").code == 0
    job = submitted(gangline, 1)
    ran = gangline("why", job)
    assert "of 1 node: 1 cordoned" in ran.out
    assert f"`gangline node uncordon {node_id()}`" in ran.out
    ran = gangline("why-not", job, node_id())
    assert ran.code == 0
    assert "- an operator has cordoned it (its fan is loud)" in ran.out
    assert gangline("node", "uncordon", node_id()).code == 0
    until(lambda: document(gangline, "why", job)["standing"] == "running", "a start")
    assert document(gangline, "why-not", job, node_id())["runs_there"] is True
    assert gangline("job", "cancel", job).code == 0
    assert gangline("job", "wait", job, "--timeout", 60).code == 1
    assert "it was cancelled" in gangline("why", job).out


def test_the_past_is_explained_as_it_was(gangline: Gangline, runs: str, waits: str) -> None:
    waited = document(gangline, "why", waits)
    assert gangline("job", "cancel", runs).code == 0
    until(lambda: document(gangline, "why", waits)["standing"] == "running", "a start")
    then = document(gangline, "why", waits, "--at", waited["index"])
    assert (then["standing"], then["text"], then["history"]) == ("pending", waited["text"], waited["history"])
    assert document(gangline, "why", waits, "--at", "0s")["standing"] == "running"


def test_why_not_gives_the_reason_of_the_node(gangline: Gangline, runs: str, waits: str) -> None:
    said = document(gangline, "why-not", waits, node_id())
    assert (said["could_hold"], [reason["kind"] for reason in said["reasons"]]) == (False, ["too_full"])
    assert f"(running there: {runs})" in said["reasons"][0]["text"]


def test_what_another_version_decided_is_told_as_it_was_decided(
    gangline: Gangline, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.scheduler.code_store.code_digest", lambda: "0" * 64)
    ran = gangline("why", waits)
    assert ran.code == 0
    assert "another version" in ran.err
    assert "it was admitted" in ran.out
    assert [one["decision"] for one in document(gangline, "why", waits)["history"]] == ["JobAdmitted"]
    ran = gangline("why-not", waits, node_id())
    assert ran.code == 1
    assert "another version" in ran.err


REFUSED: dict[str, tuple[list[object], int, str]] = {
    "an unknown job": (["why", "job-aaaaaaaaaaaa"], 3, "`gangline jobs` lists those there are"),
    "the beginning of no job": (["why", "job-99"], 3, "there is no job 'job-99'"),
    "a job before its time": (["why", "job-aaaaaaaaaaaa", "--at", 3], 3, "was admitted by index 3"),
    "a time before all": (["why", "job-aaaaaaaaaaaa", "--at", "2001-01-01"], 3, "nothing was decided by then"),
    "no time": (["why", "job-aaaaaaaaaaaa", "--at", "noon"], 2, "write an index, a time such as"),
    "a year that is none everywhere": (["why", "job-aaaaaaaaaaaa", "--at", "0001-01-01"], 2, "write an index, a time"),
    "an unknown node": (["why-not", "job-aaaaaaaaaaaa", "nowhere"], 3, "there is no node 'nowhere'"),
    "a job that no node knows": (["why-not", "job-aaaaaaaaaaaa", node_id()], 3, "gangline: no job 'job-aaaaaaaaaaaa'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses_with_the_way_out(case: str, gangline: Gangline) -> None:
    words, code, text = REFUSED[case]
    ran = gangline(*words)
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
