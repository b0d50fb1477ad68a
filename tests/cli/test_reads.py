"""Lists, timelines and the log's records, out of a history written by hand."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.examination import UNDECIDED_US
from gangline.cli.logs import Printer
from gangline.cli.output import printable
from gangline.cli.submit import submit
from gangline.events.log import CONTROL, Entry
from gangline.events.sqlite import SqliteLog
from gangline.projections.database import open_database
from gangline.projections.projector import Projector
from tests.cli.invoke import Gangline
from tests.histories import Script
from tests.projections.histories_to_project import eventful


@pytest.fixture
def script(home: Path) -> Script:
    """Return an eventful history, projected as far as it goes now."""
    script = eventful(SqliteLog(home / "log"))
    project(home)
    return script


def project(home: Path) -> None:
    log = SqliteLog(home / "log")
    projector = Projector(log, open_database(f"sqlite:///{home}/projections.sqlite", create=True))
    projector.catch_up()
    projector.close()
    log.close()


def read(gangline: Gangline, *words: object) -> Any:  # noqa: ANN401 - what the command's JSON holds
    ran = gangline(*words, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.mark.usefixtures("script")
def test_jobs_are_listed_in_the_order_of_submission(gangline: Gangline) -> None:
    rows = read(gangline, "jobs")
    made_way = ["pending"] * 3
    assert [row["state"] for row in rows] == ["succeeded", *made_way, "cancelled"]
    assert [row["state"] for row in read(gangline, "jobs", "--state", "cancelled")] == ["cancelled"]
    assert read(gangline, "jobs", "--queue", "other") == []
    held = [row["job_id"] for row in rows if row["held"]]
    assert [row["job_id"] for row in read(gangline, "jobs", "--state", "held")] == held
    lines = gangline("jobs").out.splitlines()
    assert lines[0].split()[:4] == ["JOB", "NAME", "QUEUE", "STATE"]
    assert len(lines) == 1 + len(rows)


@pytest.mark.usefixtures("script")
def test_nodes_and_queues_are_listed(gangline: Gangline) -> None:
    nodes = read(gangline, "nodes")
    assert [(node["node_id"], node["gpu_count"], node["gpu_milli_used"]) for node in nodes] == [
        ("node-0", 2, 0),
        ("node-1", 2, 0),
    ]
    assert [queue["queue"] for queue in read(gangline, "queues")] == ["a/c", "b"]
    assert "declared" in gangline("nodes").out
    assert "a/c" in gangline("queues").out


def test_gpus_count_as_used_until_their_ranks_are_gone(script: Script, home: Path, gangline: Gangline) -> None:
    job = script.admits()
    script.binds(job)
    script.decides()
    project(home)
    assert read(gangline, "nodes")[0]["gpu_milli_used"] == 1000
    script.exits(job, 0)
    script.decides()
    project(home)
    assert read(gangline, "nodes")[0]["gpu_milli_used"] == 0


@pytest.mark.usefixtures("script")
def test_a_job_is_shown_with_its_timeline(gangline: Gangline) -> None:
    job_id = read(gangline, "jobs")[0]["job_id"]
    shown = read(gangline, "job", "show", job_id)
    assert shown["job"]["job_id"] == job_id
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["failed", "succeeded"]
    assert [share["node_id"] for share in shown["attempts"][0]["placement"]] == ["node-0", "node-1"]
    assert [one["state"] for one in shown["checkpoints"]] == ["rejected", "refused"]
    indices = [entry["control_index"] for entry in shown["timeline"]]
    assert indices == sorted(indices)
    text = gangline("job", "show", job_id[:8]).out
    assert "TIMELINE" in text
    assert "requeued" in text
    assert "rank 0 was killed by signal 9" in text
    assert "_us=" not in text


@pytest.mark.usefixtures("script")
def test_a_job_that_is_not_there_exits_with_3(gangline: Gangline) -> None:
    ran = gangline("job", "show", "job-none")
    assert (ran.code, ran.out) == (3, "")
    assert "there is no job 'job-none'" in ran.err


@pytest.mark.usefixtures("script")
def test_the_beginning_of_several_ids_is_refused(gangline: Gangline) -> None:
    ran = gangline("job", "show", "job-")
    assert ran.code == 2
    assert "begins the ids of several jobs" in ran.err


@pytest.mark.usefixtures("script")
def test_waiting_exits_by_the_outcome(gangline: Gangline) -> None:
    succeeded, *_, cancelled = (row["job_id"] for row in read(gangline, "jobs"))
    assert gangline("job", "wait", succeeded).code == 0
    ran = gangline("job", "wait", cancelled, "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["cause"] == "enough"


def test_waiting_has_an_end(script: Script, home: Path, gangline: Gangline) -> None:
    job = script.admits()
    project(home)
    ran = gangline("job", "wait", job, "--timeout", 0)
    assert ran.code == 5
    assert "is pending" in ran.err


def test_a_read_after_an_index_sees_it(script: Script, home: Path, gangline: Gangline) -> None:
    job = script.admits()
    last = script.index - 1
    ran = gangline("jobs", "--after", last, "--timeout", 0)
    assert ran.code == 5
    assert "not yet" in ran.err
    project(home)
    assert read(gangline, "jobs", "--after", last)[-1]["job_id"] == job


def test_ticks_alone_are_not_waited_for(script: Script, gangline: Gangline) -> None:
    script.tick()
    script.tick()
    assert gangline("jobs", "--after", script.index - 1, "--timeout", 0).code == 0


def test_an_input_without_a_round_is_waited_for_even_between_ticks(script: Script, gangline: Gangline) -> None:
    script.tick()
    script.node("node-9")
    script.tick()
    assert gangline("nodes", "--after", script.index - 1, "--timeout", 0.05).code == 5


def test_what_is_not_on_the_log_yet_is_waited_for(script: Script, gangline: Gangline) -> None:
    assert gangline("jobs", "--after", script.index + 3, "--timeout", 0.05).code == 5


def test_records_are_shown_from_an_index_on(script: Script, gangline: Gangline) -> None:
    lines = gangline("events", "tail", "--from", script.index - 3, "--json").out.splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["index"] for record in records] == [script.index - 3, script.index - 2, script.index - 1]
    assert [record["kind"] for record in records] == ["Undecodable", "ActivatePolicy", "ClockTicked"]
    assert len(gangline("events", "tail").out.splitlines()) == 20


@pytest.mark.usefixtures("script")
def test_rounds_are_shown_with_their_decisions(gangline: Gangline) -> None:
    text = gangline("events", "tail", "--topic", "decisions", "--from", 0).out
    assert "RoundDecided" in text
    assert "GangBound" in text


def test_a_record_that_is_not_there_yet_is_waited_for(script: Script, gangline: Gangline) -> None:
    assert gangline("events", "tail", "--after", script.index, "--timeout", 0).code == 5
    assert gangline("events", "tail", "--after", script.index - 1).code == 0


def test_tail_begins_at_an_index_that_it_first_waits_for_or_says_that_there_is_none(
    script: Script, gangline: Gangline
) -> None:
    beyond = script.index + 5
    ran = gangline("events", "tail", "--from", beyond)
    assert (ran.code, ran.out) == (3, "")
    assert f"has no index {beyond} yet" in ran.err
    assert gangline("events", "tail", "--from", beyond, "--after", beyond, "--timeout", 0).code == 5


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_a_timeout_that_would_never_pass_is_refused(seconds: str, gangline: Gangline) -> None:
    for words, command in (
        (["jobs"], []),
        (["events", "tail"], []),
        (["submit"], ["--", "true"]),
        (["job", "wait", "j"], []),
    ):
        ran = gangline(*words, f"--timeout={seconds}", *command)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("gangline: --timeout: this is ")


def test_names_cannot_steer_the_terminal_or_break_lines() -> None:
    assert printable("a\x1b[2J\nb é") == "a\\x1b[2J\\nb é"


def test_records_of_a_newer_version_are_told(script: Script, gangline: Gangline) -> None:
    script.log.append(CONTROL, [Entry(b"", b"\xc3\x01" + b"\0" * 8)])
    ran = gangline("events", "tail")
    assert ran.code == 1
    assert "it was written by a newer one" in ran.err


def test_logs_are_printed_over_attempts(script: Script, home: Path, tmp_path: Path, gangline: Gangline) -> None:
    job = script.admits()
    for attempt in (1, 2):
        script.binds(job, attempt)
        folder = tmp_path / f"run-{attempt}"
        folder.mkdir()
        (folder / "rank-0.out").write_bytes(b"step 1 of attempt %d\n\xff no end" % attempt)
        (folder / "rank-0.err").write_text("careful\n")
        script.runs(job, attempt, run_dir=str(folder))
        script.exits(job, attempt - 1, attempt)
    script.ends(job, attempts=2)
    project(home)
    whole = gangline("job", "logs", "-f", "--attempt", 1, job)
    assert whole.out.splitlines() == [
        "step 1 of attempt 1",
        "careful",
        "step 1 of attempt 2",
        "careful",
        "\ufffd no end",
        "\ufffd no end",
    ]
    assert "--- attempt 2 on node-0" in whole.err
    latest = [json.loads(line) for line in gangline("job", "logs", job, "--json").out.splitlines()]
    assert latest[0] == {"attempt": 2, "rank": 0, "stream": "stdout", "line": "step 1 of attempt 2"}
    assert gangline("job", "logs", job, "--rank", 7).out == ""


def test_a_last_line_without_an_end_names_its_rank_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}.out").write_text(f"loss of {rank}")
    share = {"node_id": "node-0", "run_dir": str(tmp_path), "rank_count": 2, "first_rank": 0}
    printer = Printer(rank=None, as_json=False)
    printer.print({"attempt": 1, "world_size": 2, "placement": [share]})
    printer.flush()
    assert capsys.readouterr().out.splitlines() == ["[0] loss of 0", "[1] loss of 1"]


def test_output_on_another_node_is_named(script: Script, home: Path, gangline: Gangline) -> None:
    job = script.admits()
    script.binds(job)
    script.runs(job, run_dir="/nowhere/here")
    script.decides()
    project(home)
    ran = gangline("job", "logs", job)
    assert "on node-0, in /nowhere/here there" in ran.err
    assert "has no output on this machine (it is running)" in ran.err


def test_doctor_finds_what_is_wrong(script: Script, gangline: Gangline) -> None:
    script.node("node-5")
    ran = gangline("doctor", "--json")
    assert ran.code == 1
    found = {finding["what"]: finding for finding in json.loads(ran.out)}
    assert found["log"]["status"] == "ok"
    assert found["tables"]["found"].endswith("0 rounds behind")
    assert "no scheduler decides" in found["scheduler"]["mend"]
    assert found["agent of node-0"]["status"] == "wrong"
    assert "XX" in gangline("doctor", "-q").out


def test_doctor_knows_of_a_dead_scheduler_by_the_time_that_submit_gives_up() -> None:
    waits_s = inspect.signature(submit).parameters["timeout"].default
    assert waits_s * 1_000_000 >= UNDECIDED_US


def test_doctor_finds_tables_that_were_never_filled(home: Path, gangline: Gangline) -> None:
    Script(SqliteLog(home / "log"))
    ran = gangline("doctor")
    assert ran.code == 1
    assert "nothing has been projected yet" in ran.out
    assert "no term is open" in ran.out


@pytest.mark.usefixtures("script")
def test_the_code_of_a_job_that_is_no_folder_is_a_usage_error(tmp_path: Path, gangline: Gangline) -> None:
    ran = gangline("submit", "--code", tmp_path / "none", "--", "true")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"gangline: --code: {tmp_path}/none is no folder")
    (tmp_path / "job.toml").write_text("command = ['true']\ncode = 'none'\nresources.gpus = 1\n")
    ran = gangline("submit", tmp_path / "job.toml")
    assert ran.code == 2
    assert f"job.toml:2: code: {tmp_path}/none is no folder" in ran.err


@pytest.mark.usefixtures("script")
def test_a_state_that_no_job_can_have_is_a_usage_error_and_no_empty_list(gangline: Gangline) -> None:
    ran = gangline("jobs", "--state", "done")
    assert (ran.code, ran.out) == (2, "")
    assert "succeeded" in ran.err
