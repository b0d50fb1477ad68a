"""`gangline up`: coming up, going down, and what it does not hurt."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.events.sqlite import SqliteLog
from tests.cli.invoke import Gangline
from tests.cli.running import Up, alive, kill, until, up
from tests.histories import Script

NOBODY = 65534


@pytest.mark.slow
def test_a_job_outlives_up_and_is_taken_back(home: Path, gangline: Gangline) -> None:
    with up(home, "--gpus", "1") as first:
        go = home.parent / "go"
        script = f"echo $$; while [ ! -e {go} ]; do sleep 0.05; done; echo done"
        job = json.loads(gangline("submit", "--json", "--", "sh", "-c", script).out)["job_id"]
        until(lambda: gangline("job", "logs", job).out, "the first line")
        pid = int(gangline("job", "logs", job).out)
        parts = first.children()
        assert first.end() == 0
        assert f"a running job goes on ({job})" in first.said
        assert [name for name, one in parts.items() if alive(one)] == []
        assert alive(pid)
    with up(home, "--gpus", "1"):
        go.touch()
        assert gangline("job", "wait", job, "--timeout", 60).code == 0
        shown = json.loads(gangline("job", "show", job, "--json").out)
        assert [attempt["outcome"] for attempt in shown["attempts"]] == ["succeeded"]


@pytest.mark.slow
def test_parts_die_with_an_up_that_is_killed(home: Path) -> None:
    running = Up(home, "--gpus", "1").ready()
    parts = running.children()
    kill(running.process.pid)
    running.end()
    until(lambda: not any(alive(pid) for pid in parts.values()), "the end of the parts")
    with up(home, "--gpus", "1") as again:
        assert "already runs" not in again.said


@pytest.mark.slow
def test_interrupting_up_while_it_comes_up_ends_it(home: Path) -> None:
    running = Up(home, "--gpus", "1")
    until((home / "logs" / "agent.log").exists, "the agent's start")
    assert running.end(signal.SIGINT) == 0
    assert "stopped" in running.said


@pytest.mark.slow
def test_a_part_that_cannot_run_ends_up_with_its_last_words(home: Path) -> None:
    script = Script(SqliteLog(home / "log"))
    script.append_bytes(b"\xc3\x01" + b"\0" * 8)
    script.log.close()
    running = Up(home, "--gpus", "1")
    code = until(running.process.poll, "giving up")
    running.end()
    assert code == 1
    assert "ends again and again" in running.said
    assert "it was written by a newer one" in running.said
    assert "Traceback" not in running.said


def test_a_log_in_a_newer_format_is_refused(home: Path, gangline: Gangline) -> None:
    SqliteLog(home / "log").close()
    import apsw

    path = home / "log" / "control-0.db"
    database = apsw.Connection(str(path))
    database.pragma("user_version", 10_000)
    database.close()
    ran = gangline("up", "--gpus", 1)
    assert ran.code == 1
    assert "newer" in ran.err


def test_no_port_is_needed_and_a_bad_number_of_gpus_is_refused(gangline: Gangline) -> None:
    ran = gangline("up", "--gpus", 0)
    assert ran.code == 2
    assert "--gpus" in ran.err


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that every user may enter, and only this one may write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def as_nobody(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without rights.

    What it imports that user may not be able to read; so it runs once before, for a folder that cannot be.
    """
    program = (
        "import os, sys, gangline.cli, gangline.events.open_log, gangline.cli.commands, gangline.events.sqlite\n"
        "import gangline.projections.queries, gangline.projections.database, sqlalchemy.dialects.sqlite\n"
        "def run(words):\n"
        "    sys.argv = ['gangline', *words]\n"
        "    gangline.cli.main()\n"
        f"words = {[str(word) for word in words]!r}\n"
        "try:\n"
        "    run([word if word[0] != '/' else '/proc/none' for word in words])\n"
        "except SystemExit:\n"
        "    sys.stderr.write('\\0')\n"
        f"if os.geteuid() == 0:\n    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "run(words)\n"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)
    ran.stderr = ran.stderr.rpartition("\0")[2]
    return ran


@pytest.mark.parametrize("command", [("up",), ("submit", "--", "true"), ("jobs",)])
def test_a_folder_without_write_permission_is_told_with_the_way_out(
    command: tuple[str, ...], public_folder: Path
) -> None:
    home = public_folder / "home"
    script = Script(SqliteLog(home / "log"))
    script.starts()
    script.log.close()
    (home / "projections.sqlite").touch()
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() != 0:
        home.chmod(0o555)
    at = command.index("--") if "--" in command else len(command)
    ran = as_nobody(*command[:at], "--home", home, *command[at:])
    home.chmod(stat.S_IRWXU)
    assert ran.returncode in {1, 4}
    assert ran.stderr.startswith("gangline: ")
    assert "Traceback" not in ran.stderr
    assert "permission" in ran.stderr.lower() or "cannot be written" in ran.stderr


def test_up_where_no_folder_can_be_made_says_so(public_folder: Path) -> None:
    ran = as_nobody("up", "--home", public_folder / "new")
    assert ran.returncode == 1
    assert "cannot be written" in ran.stderr
    assert "--home" in ran.stderr


def test_commands_without_a_folder_name_the_way_out(gangline: Gangline) -> None:
    for words in (["jobs"], ["submit", "--", "true"], ["events", "tail"], ["job", "wait", "job-a"], ["doctor"]):
        ran = gangline(*words)
        assert (ran.code, ran.out) == (3, "")
        assert "run `gangline up` here" in ran.err


def test_a_submission_without_a_scheduler_is_recorded_and_exits_with_5(home: Path, gangline: Gangline) -> None:
    script = Script(SqliteLog(home / "log"))
    script.starts()
    ran = gangline("submit", "--timeout", 0, "--", "true")
    assert (ran.code, ran.out) == (5, "")
    assert f"recorded at {script.index}, not yet decided" in ran.err


def test_a_configuration_that_is_malformed_is_told_with_its_line(home: Path, gangline: Gangline) -> None:
    home.mkdir()
    (home / "gangline.toml").write_text("# here\nlogg = 'sqlite:a'\n")
    ran = gangline("jobs")
    assert ran.code == 2
    assert "gangline.toml:2: logg: the keys are log, sql, objects" in ran.err


@pytest.mark.parametrize("url", ["redis:abc", "kafka://", "sqlite:"])
def test_a_url_that_names_no_log_is_told_with_what_is_valid(url: str, gangline: Gangline) -> None:
    ran = gangline("submit", "--log", url, "--", "true")
    assert ran.code == 2
    assert "names no log" in ran.err


def test_a_database_that_gangline_does_not_know_is_told(home: Path, gangline: Gangline) -> None:
    home.mkdir()
    ran = gangline("jobs", "--sql", "mysql://host/name")
    assert ran.code == 2
    assert "sqlite or postgresql+psycopg" in ran.err


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/none", "sqlite:///{home}/junk"])
def test_a_database_that_does_not_answer_is_told(url: str, home: Path, gangline: Gangline) -> None:
    home.mkdir()
    (home / "junk").write_bytes(b"no database at all" * 1000)
    ran = gangline("jobs", "--sql", url.format(home=home))
    assert ran.code == 1
    assert "cannot be used now" in ran.err
    assert "--sql" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_what_nobody_foresaw_is_one_line_and_a_file(gangline: Gangline, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise ZeroDivisionError("a surprise\nof two lines")

    monkeypatch.setattr(socket, "gethostname", fail)
    ran = gangline("up", "--gpus", 1)
    assert ran.code == 1
    assert ran.err.startswith("gangline: ZeroDivisionError: a surprise (this was not foreseen; the details are in ")
    assert len(ran.err.splitlines()) == 1
    details = Path(ran.err.split("the details are in ")[1].strip().removesuffix(")"))
    assert "Traceback" in details.read_text()
    details.unlink()


def test_a_mistake_in_the_routes_is_told_before_anything_starts(home: Path, gangline: Gangline) -> None:
    home.mkdir()
    (home / "notify.toml").write_text('[[route]]\nname = "a"\n')
    ran = gangline("up", "--gpus", "1")
    assert (ran.code, ran.out) == (2, "")
    assert "notify.toml: route[0] ('a'): it has neither a url nor a command: name one of the two" in ran.err
    assert not (home / "log").exists()


@pytest.mark.slow
def test_a_mistake_in_the_routes_later_on_is_told_and_jobs_go_on(home: Path, gangline: Gangline) -> None:
    with up(home, "--gpus", "1") as running:
        (home / "notify.toml").write_text('[[route]]\nname = "a"\n')
        kill(running.children()["gangline.agents.notifier"])
        until(lambda: "WARNING" in running.said or running.process.poll() is not None, "the warning")
        assert "nobody is told what becomes of jobs until it runs" in running.said
        assert "it has neither a url nor a command" in running.said
        job = json.loads(gangline("submit", "--json", "--", "true").out)["job_id"]
        assert gangline("job", "wait", job, "--timeout", 60).code == 0
        findings = {one["what"]: one for one in json.loads(gangline("doctor", "--json").out)}
        assert findings["notifier"]["status"] == "wrong"
        assert "it has neither a url nor a command" in findings["notifier"]["mend"]
