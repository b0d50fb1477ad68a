"""What happens to jobs reaches webhooks and programs, at least once, whatever dies in between."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.agents.notifier import notifier as notifier_module
from gangline.agents.notifier.notifier import Notifier
from gangline.agents.notifier.routes import Routes, read_routes
from gangline.agents.notifier.store import Store
from gangline.events.decisions import AttemptEnded, AttemptPreempted, JobAdmitted, JobEnded, JobRejected, JobRequeued
from gangline.events.open_log import open_log
from gangline.events.types import Outcome
from gangline.schemas.errors import UsageError
from tests.agents.node import wait_for
from tests.agents.notifier.receiver import Receiver, notifying
from tests.histories import Script, gang_bound


class Story(Script):
    """A history of jobs that are told about; `url` names its log."""

    def __init__(self, url: str) -> None:
        super().__init__(open_log(url, create=True))
        self.url = url
        self.starts()

    def admitted(self, *notify: str, **spec: object) -> str:
        command_id = self.command_id()
        job_id, index = self.submits(command_id, notify=notify, **spec)
        self.decides(JobAdmitted(command_id=command_id, control_index=index, job_id=job_id))
        return job_id

    def started(self, job_id: str, attempt: int = 1) -> None:
        self.decides(gang_bound(job_id, attempt))
        self.runs(job_id, attempt)
        self.decides()

    def preempted(self, job_id: str, attempt: int = 1) -> None:
        cause = "it gave way (reclaim) to job-b"
        self.decides(
            AttemptPreempted(job_id=job_id, attempt=attempt, reason="reclaim", cause=cause),
            JobRequeued(job_id=job_id, attempt=attempt, failures_in_row=0, cause=cause),
        )

    def failed(self, job_id: str, attempt: int) -> None:
        cause = "rank 0 exited with code 1"
        self.decides(
            AttemptEnded(job_id=job_id, attempt=attempt, outcome="failed", cause=cause),
            JobRequeued(job_id=job_id, attempt=attempt, failures_in_row=1, cause=cause),
        )

    def life(self, *notify: str, outcome: Outcome = "succeeded", **spec: object) -> str:
        """Tell a job that is preempted, fails, and ends."""
        job_id = self.admitted(*notify, **spec)
        self.started(job_id)
        self.preempted(job_id)
        self.started(job_id, 2)
        self.failed(job_id, 2)
        self.started(job_id, 3)
        self.ends(job_id, outcome, 3)
        return job_id


LIFE = ["started", "preempted", "started", "failed", "started", "ended"]


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    told = Story(f"sqlite:{tmp_path / 'log'}")
    yield told
    told.log.close()


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def follows_a_life(story: Story, hook: Receiver, home: Path) -> None:
    with notifying(home, story.url) as notifier:
        notifier.begun()
        job_id = story.life(hook.url)
        got = hook.wait(6)
        assert [one["kind"] for one in got] == LIFE
        assert {one["job_id"] for one in got} == {job_id}
        assert [one["attempt"] for one in got] == [1, 1, 2, 2, 3, 3]
        assert (got[1]["reason"], got[1]["cause"]) == ("reclaim", "it gave way (reclaim) to job-b")
        assert got[0]["text"] == f"train ({job_id}) has started on node-0"
        assert got[5]["text"] == f"train ({job_id}) has succeeded: because"
        assert got[5]["outcome"] == "succeeded"
        assert len({one["event_id"] for one in got}) == 6
        for body, headers in zip(got, hook.headers, strict=True):
            assert headers["X-Gangline-Event-Id"] == headers["Idempotency-Key"] == body["event_id"]
        assert notifier.end() == 0


def test_a_job_is_told_from_its_start_to_its_end(story: Story, hook: Receiver, tmp_path: Path) -> None:
    follows_a_life(story, hook, tmp_path / "home")


@pytest.mark.slow
def test_the_same_is_told_from_kafka(kafka_bootstrap: str, kafka_prefix: str, hook: Receiver, tmp_path: Path) -> None:
    told = Story(f"kafka://{kafka_bootstrap}/{kafka_prefix}")
    follows_a_life(told, hook, tmp_path / "home")
    told.log.close()


def test_its_first_start_tells_nothing_of_what_was_before(story: Story, hook: Receiver, tmp_path: Path) -> None:
    story.life(hook.url, name="old")
    running = story.admitted(hook.url, name="running")
    story.started(running)
    with notifying(tmp_path / "home", story.url) as notifier:
        notifier.begun()
        story.ends(running)
        hook.wait(1)
        story.life(hook.url, name="new")
        hook.wait(7)
    assert (hook.kinds("old"), hook.kinds("running"), hook.kinds("new")) == ([], ["ended"], LIFE)


def test_its_first_start_tells_from_where_it_is_told_to(story: Story, hook: Receiver, tmp_path: Path) -> None:
    story.life(hook.url, name="old")
    first = story.index
    story.life(hook.url, name="new")
    with notifying(tmp_path / "home", story.url, "--from", str(first)) as notifier:
        hook.wait(6)
        assert notifier.begun().end() == 0
    assert (hook.kinds("old"), hook.kinds("new")) == ([], LIFE)


def test_of_a_long_past_the_newest_messages_are_kept_and_the_rest_is_told_to_be_given_up(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifier_module, "MAX_PAST", 4)
    story.life("http://127.0.0.1:9/hook")
    store = Store(tmp_path / "notifier.sqlite")
    notifier = Notifier(open_log(story.url), store, Routes(), first_index=0)
    (first,) = store.due(time.time() + 1, (), 10)
    assert (store.waiting(), json.loads(first.body)["kind"]) == (4, LIFE[2])
    assert "the oldest 2 messages are given up" in caplog.text
    notifier.close()
    store.close()


def test_a_kill_between_sending_and_committing_sends_again_with_the_same_id(
    story: Story, hook: Receiver, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with notifying(home, story.url) as notifier:
        notifier.begun()

        def dies(_body: dict[str, Any]) -> int:
            notifier.process.send_signal(signal.SIGKILL)
            notifier.process.wait()
            return 200

        hook.answer = dies
        job_id = story.admitted(hook.url)
        story.started(job_id)
        hook.wait(1)
        wait_for(lambda: notifier.process.poll() is not None, "the kill")
    hook.answer = lambda _body: 200
    story.ends(job_id)
    with notifying(home, story.url):
        got = hook.wait(3)
    assert [one["kind"] for one in got] == ["started", "started", "ended"]
    assert got[0] == got[1]


@pytest.mark.slow
def test_nothing_is_lost_however_often_it_is_killed(story: Story, hook: Receiver, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with notifying(home, story.url) as notifier:
        notifier.begun()
    names = []
    for number in range(12):
        names.append(f"job-{number}")
        with notifying(home, story.url):
            story.life(hook.url, name=names[-1])
            hook.wait(number * 3)  # somewhere in the middle of what is sent
    with notifying(home, story.url):
        wait_for(lambda: len({one["event_id"] for one in hook.got}) >= 72, "all messages")
    for name in names:
        first = {one["event_id"]: one for one in reversed(hook.got) if one["name"] == name}
        assert [one["kind"] for one in sorted(first.values(), key=lambda one: one["at_us"])] == LIFE


def test_a_dead_target_holds_up_no_other_and_gets_all_when_it_is_back(
    story: Story, hook: Receiver, tmp_path: Path
) -> None:
    with Receiver() as gone:
        port = gone.port
    with notifying(tmp_path / "home", story.url) as notifier:
        notifier.begun()
        story.life(gone.url, hook.url)
        assert [one["kind"] for one in hook.wait(6)] == LIFE
        wait_for(
            lambda: "takes no messages, they wait and are tried again" in notifier.stderr.read_text(),
            "a word of the dead target",
        )
        with Receiver(port) as back:
            assert [one["kind"] for one in back.wait(6)] == LIFE
            wait_for(lambda: "takes messages again" in notifier.stderr.read_text(), "a word of its return")


def test_a_message_that_a_receiver_does_not_understand_holds_up_no_other(
    story: Story, hook: Receiver, tmp_path: Path
) -> None:
    hook.answer = lambda body: 422 if body["kind"] == "preempted" and hook.kinds().count("preempted") == 1 else 200
    with notifying(tmp_path / "home", story.url) as notifier:
        notifier.begun()
        story.life(hook.url)
        hook.wait(7)
    assert sorted(hook.kinds()) == sorted([*LIFE, "preempted"])


def test_a_program_gets_the_event_on_its_standard_input_without_a_shell(story: Story, tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "kept; touch x"
    kept.mkdir()
    tell = tmp_path / "tell"
    tell.write_text('#!/bin/sh\ncat > "$1/.new" && mv "$1/.new" "$1/$GANGLINE_EVENT_ID"\n')
    tell.chmod(0o755)
    home.mkdir()
    (home / "notify.toml").write_text(
        f'[[route]]\nname = "all"\ncommand = {json.dumps([str(tell), str(kept)])}\nevents = ["failed", "ended"]\n'
    )
    with notifying(home, story.url) as notifier:
        notifier.begun()
        story.life()
        wait_for(lambda: len([one for one in kept.iterdir() if one.name[0] != "."]) == 2, "both files")
    found = {path.name: json.loads(path.read_text()) for path in kept.iterdir()}
    assert sorted(body["kind"] for body in found.values()) == ["ended", "failed"]
    assert all(name == body["event_id"] for name, body in found.items())
    assert not (tmp_path / "x").exists()


def test_a_program_that_fails_or_hangs_is_run_again(story: Story, tmp_path: Path) -> None:
    home, mark = tmp_path / "home", tmp_path / "mark"
    tell = tmp_path / "tell"
    tell.write_text(
        f"#!/bin/sh\nif [ ! -e {mark}.1 ]; then touch {mark}.1; echo no mail today; exit 7; fi\n"
        f"if [ ! -e {mark}.2 ]; then touch {mark}.2; sleep 600; fi\ncat > {mark}\n"
    )
    tell.chmod(0o755)
    home.mkdir()
    (home / "notify.toml").write_text(
        f'[[route]]\nname = "all"\ncommand = ["{tell}"]\nevents = ["ended"]\ntimeout = 0.5\n'
    )
    with notifying(home, story.url) as notifier:
        notifier.begun()
        story.life()
        wait_for(lambda: mark.exists() and mark.stat().st_size, "the third run")
        said = notifier.stderr.read_text()
    assert "it exits with 7: no mail today" in said
    assert "it does not end within 0.5 s, and is killed" in said


def test_routes_go_by_user_queue_job_and_event(story: Story, hook: Receiver, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "notify.toml").write_text(
        f'[[route]]\nname = "a"\nurl = "{hook.url}/a"\nqueues = ["org"]\nevents = ["failed"]\n'
        f'headers = {{ Authorization = "$HOOK_TOKEN" }}\n'
        f'[[route]]\nname = "b"\nurl = "{hook.url}/b"\njobs = ["train-*"]\nusers = ["test"]\nevents = ["ended"]\n'
        f'[[route]]\nname = "c"\nurl = "{hook.url}/c"\nusers = ["ann"]\n'
    )
    with notifying(home, story.url) as notifier:
        notifier.begun()
        story.life(name="train-1", queue="organ")
        story.life(name="other", queue="org/team", outcome="failed")
        hook.wait(3)
        story.life(hook.url, name="last")
        wait_for(lambda: hook.kinds("last") == LIFE or None, "the last job")
    told = [(one["name"], one["kind"]) for one in hook.got if one["name"] != "last"]
    assert sorted(told) == [("other", "ended"), ("other", "failed"), ("train-1", "ended")]
    assert "secret-7" in [headers.get("Authorization") for headers in hook.headers]


def test_urls_of_jobs_that_the_operator_does_not_allow_are_not_told(
    story: Story, hook: Receiver, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "notify.toml").write_text(f'allow = ["{hook.url}"]\n')
    with notifying(home, story.url) as notifier, Receiver() as inside:
        notifier.begun()
        story.life(inside.url, "file:///etc/passwd", hook.url)
        hook.wait(6)
        assert inside.got == []
        assert f"asks for {inside.url}, which the routes do not allow" in notifier.stderr.read_text()


def test_an_array_is_told_once_not_for_each_of_its_jobs(story: Story, hook: Receiver, tmp_path: Path) -> None:
    with notifying(tmp_path / "home", story.url) as notifier:
        notifier.begun()
        array = story.admitted(hook.url, array=4)
        for task in range(3):
            story.started(f"{array}.{task}")
        for task, outcome in enumerate(("succeeded", "failed", "failed", "cancelled")):
            story.decides(
                JobEnded(job_id=f"{array}.{task}", outcome=outcome, cause="because", attempts=1)  # type: ignore[arg-type]
            )
        got = hook.wait(3)
        story.life(hook.url, name="last")
        wait_for(lambda: hook.kinds("last") == LIFE or None, "the last job")
    assert [(one["kind"], one["job_id"]) for one in got] == [("started", array), ("failed", array), ("ended", array)]
    assert got[1]["cause"] == f"{array}.1: because"
    assert got[2]["outcome"] == "failed"
    assert hook.kinds("train") == ["started", "failed", "ended"]


def test_a_rejected_job_is_forgotten_and_a_repeat_is_told_once(story: Story, hook: Receiver, tmp_path: Path) -> None:
    with notifying(tmp_path / "home", story.url) as notifier:
        notifier.begun()
        command_id = story.command_id()
        job_id, index = story.submits(command_id, notify=(hook.url,))
        story.decides(
            JobRejected(
                command_id=command_id,
                control_index=index,
                key="gpus",
                value="9",
                limit="2",
                message="too many",
            )
        )
        job_id = story.admitted(hook.url)
        story.started(job_id)
        story.runs(job_id)
        story.ends(job_id)
        story.runs(job_id)
        story.decides()
        story.life(hook.url, name="last")
        wait_for(lambda: hook.kinds("last") == LIFE or None, "the last job")
    assert hook.kinds("train") == ["started", "ended"]


def test_a_second_notifier_is_refused(story: Story, tmp_path: Path) -> None:
    with notifying(tmp_path / "home", story.url) as first:
        first.begun()
        with notifying(tmp_path / "home", story.url) as second:
            assert second.process.wait(20) == 4
        assert "another notifier has" in first.stderr.read_text()


def test_a_log_that_it_does_not_belong_to_is_refused(story: Story, tmp_path: Path) -> None:
    with notifying(tmp_path / "home", story.url) as first:
        first.begun()
    other = Story(f"sqlite:{tmp_path / 'other'}")
    with notifying(tmp_path / "home", other.url) as second:
        assert second.process.wait(20) == 1
        assert "but this is log" in second.stderr.read_text()
    other.log.close()


ROUTE = "[[route]]\nname = 'a'\n"
HOOK = f"{ROUTE}url = 'http://x'\n"
BAD: dict[str, tuple[str, str]] = {
    "no TOML": ("allow = [", "notify.toml is no TOML: "),
    "a key of nobody": (
        "allowed = []\n",
        "notify.toml: allowed is no key of this file: the keys are allow, keep or route",
    ),
    "an unknown key": (
        f"{ROUTE}urll = 'http://x'\n",
        "route[0] ('a'): urll is no key of a route: the keys are name, url,",
    ),
    "no name": ("[[route]]\nurl = 'http://x'\n", "notify.toml: route[0] has no name: give it one"),
    "one table of routes": (
        "[route]\nname = 'a'\n",
        "route is a table, but there may be several routes: begin each with",
    ),
    "neither": (ROUTE, "route[0] ('a'): it has neither a url nor a command: name one of the two"),
    "both": (
        f"{HOOK}command = ['/bin/true']\n",
        "route[0] ('a'): it has both a url and a command: name one of the two",
    ),
    "no URL": (f"{ROUTE}url = 'ftp://x'\n", "url is 'ftp://x', which is no webhook: begin it with https:// or http://"),
    "a number for a URL": (
        f"{ROUTE}url = 5\n",
        "route[0] ('a'): url is a number, but has to be text: put it in quotes",
    ),
    "no program": (f"{ROUTE}command = ['/nowhere/tell']\n", "command is '/nowhere/tell', which is no program: give"),
    "a folder": (f"{ROUTE}command = ['/']\n", "command is '/', which is no program"),
    "a command line": (f"{ROUTE}command = '/bin/true'\n", "command is text, but has to be a list of text: write"),
    "no such event": (
        f"{HOOK}events = ['failed', 'born']\n",
        "route[0] ('a'): events[1] is 'born', but has to be started, preempted, failed or ended",
    ),
    "a header of a number": (f"{HOOK}headers.X = 1\n", "headers.X is a number, but has to be text"),
    "a name twice": (HOOK * 2, "route[1] ('a'): another route has this name: give it its own"),
    "a time as text": (
        f"{HOOK}timeout = '10'\n",
        "timeout is text, but has to be a number of seconds: write it without",
    ),
    "a time too long": (f"{HOOK}timeout = 601\n", "timeout is 601, but has to be more than 0 and at most 600 seconds"),
    "no time at all": ("keep = 0\n", "notify.toml: keep is 0, but has to be more than 0 and at most 8,760 hours"),
    "no such secret": (
        f"{HOOK}headers.Authorization = '$NOT_SET'\n",
        "route 'a': headers.Authorization is $NOT_SET, but the notifier has no such variable: set NOT_SET where it",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_in_the_routes_is_told_by_file_and_key(case: str, tmp_path: Path) -> None:
    text, message = BAD[case]
    path = tmp_path / "notify.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_routes(path, needed=True)
    said = str(raised.value)
    assert message in said
    assert said.startswith(str(path))
    assert "$." not in said
    assert "`" not in said


def test_a_notifier_with_a_mistake_in_its_routes_begins_nothing(story: Story, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "notify.toml").write_text(ROUTE)
    with notifying(home, story.url) as notifier:
        assert notifier.process.wait(20) == 2
        said = notifier.stderr.read_text()
        assert "it has neither a url nor a command" in said
        assert "Traceback" not in said
    assert not os.path.exists(home / "notifier.sqlite")  # noqa: PTH110 - nothing was begun
