"""The doctor tells of a notifier that does not run, cannot start again, or is not rid of its messages."""

import json
from pathlib import Path

import pytest

from gangline.agents.notifier.status import STATUS_FILE, Status, write_status
from gangline.agents.notifier.store import STORE_FILE, Stand, Store
from gangline.events.log import START
from gangline.events.sqlite import SqliteLog
from gangline.events.terms import NO_TERM
from tests.agents.notifier.receiver import Receiver, notifying
from tests.agents.notifier.test_notifier import Story
from tests.cli.invoke import Gangline
from tests.cli.running import until

Finding = dict[str, str]


def notifier_of(gangline: Gangline) -> dict[str, Finding]:
    found = json.loads(gangline("doctor", "--json").out)
    return {one["what"]: one for one in found if one["what"].startswith("notifier")}


def with_mail(found: dict[str, Finding]) -> dict[str, Finding]:
    return found if "notifier's route mail" in found else {}


@pytest.fixture
def log(home: Path) -> None:
    """Let there be a log in the folder, so that there is a deployment to look at."""
    SqliteLog(home / "log").close()
    Story(f"sqlite:{home / 'log'}").log.close()


@pytest.mark.usefixtures("log")
def test_a_folder_in_which_no_notifier_ever_ran_lacks_nothing(gangline: Gangline) -> None:
    assert notifier_of(gangline) == {
        "notifier": {"what": "notifier", "status": "ok", "found": "none has run with this folder", "mend": ""}
    }


@pytest.mark.usefixtures("log")
def test_one_that_was_started_and_never_began_is_wrong(home: Path, gangline: Gangline) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "notifier.log").touch()
    found = notifier_of(gangline)["notifier"]
    assert (found["status"], found["found"]) == ("wrong", "it has not begun")
    assert "logs/notifier.log" in found["mend"]


@pytest.mark.usefixtures("log")
def test_one_that_does_not_run_is_wrong_with_what_waits(home: Path, gangline: Gangline) -> None:
    store = Store(home / STORE_FILE)
    store.advance(Stand("log", START, START, NO_TERM), {}, [("http://x", "1", b"{}")], 100.0)
    store.close()
    found = notifier_of(gangline)["notifier"]
    assert (found["status"], found["found"]) == ("wrong", "it does not run, 1 message waits")
    assert found["mend"].startswith("start `gangline up`, or `gangline notifier`")
    (home / "notify.toml").write_text("allow = 5\n")
    assert "allow is a number, but has to be a list of text" in notifier_of(gangline)["notifier"]["mend"]


@pytest.mark.usefixtures("log")
def test_one_that_runs_and_says_nothing_is_told(home: Path, gangline: Gangline) -> None:
    store = Store(home / STORE_FILE)
    assert notifier_of(gangline)["notifier"]["found"] == "it runs, but has not said how it stands"
    write_status(home / STATUS_FILE, Status(at_s=100.0, pid=1, routes=str(home / "notify.toml"), waiting=0))
    found = notifier_of(gangline)["notifier"]
    assert found["status"] == "warning"
    assert "it runs, but has not said how it stands for" in found["found"]
    store.close()


@pytest.mark.slow
def test_receivers_that_do_not_take_their_messages_are_named(home: Path, gangline: Gangline) -> None:
    story = Story(f"sqlite:{home / 'log'}")
    with Receiver() as refuses, Receiver() as takes:
        refuses.answer = lambda _: 503
        (home / "notify.toml").write_text(f"[[route]]\nname = 'mail'\nurl = '{refuses.url}'\n")
        with notifying(home, story.url) as notifier:
            notifier.begun()
            story.life(takes.url)
            takes.wait(3)
            found = until(lambda: with_mail(notifier_of(gangline)), "three tries")
            assert found["notifier"]["status"] == "ok"
            assert found["notifier"]["found"].startswith("it runs, ")
            route = found["notifier's route mail"]
            assert route["status"] == "wrong"
            assert "does not take its messages: " in route["found"]
            assert "the last time: it answers 503" in route["found"]
            assert len(found) == 2
            assert gangline("doctor").code == 1
            (home / "notify.toml").write_text("[[route]]\nname = 5\n")
            again = notifier_of(gangline)["notifier"]
            assert again["found"] == "it runs with the routes of its start, and cannot start again"
            assert "name is a number, but has to be text" in again["mend"]
    assert notifier_of(gangline)["notifier's route mail"]["status"] == "wrong"
    story.log.close()
