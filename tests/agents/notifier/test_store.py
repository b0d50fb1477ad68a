"""The outbox gives each target its oldest message that is due, and has bounds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.agents.notifier import store as store_module
from gangline.agents.notifier.notice import Known
from gangline.agents.notifier.store import Stand, Store
from gangline.events.log import Position
from gangline.events.terms import Terms
from gangline.schemas.errors import GanglineError

STAND = Stand("log", Position(5, 7), Position(3, 4), Terms(term=2, decided=4))
KNOWN = Known(name="a", queue="q", user="u", notify=("http://x",), nodes=("n-1",), started=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "notifier.sqlite")
    yield opened
    opened.close()


def put(store: Store, *messages: tuple[str, str], now_s: float = 100.0) -> None:
    store.advance(STAND, {}, [(target, event, b"{}") for target, event in messages], now_s)


def due(store: Store, now_s: float = 200.0, busy: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(one.target, one.event_id) for one in store.due(now_s, busy, 10)]


def test_what_is_kept_is_there_again(store: Store, tmp_path: Path) -> None:
    assert store.stand() is None
    store.advance(STAND, {"job-a": KNOWN, "job-b": KNOWN}, [("t", "1", b"{}")], 100.0)
    store.advance(STAND, {"job-b": None}, [], 100.0)
    store.close()
    again = Store(tmp_path / "notifier.sqlite")
    assert (again.stand(), again.jobs(), due(again)) == (STAND, {"job-a": KNOWN}, [("t", "1")])
    again.close()


def test_each_target_that_is_not_busy_gets_its_oldest_message(store: Store) -> None:
    put(store, ("a", "1"), ("b", "2"), ("a", "3"))
    assert due(store) == [("a", "1"), ("b", "2")]
    assert due(store, busy=("a",)) == [("b", "2")]
    store.delivered(store.due(200.0, (), 1)[0])
    assert due(store) == [("b", "2"), ("a", "3")]


def test_a_message_put_off_lets_the_next_one_pass(store: Store) -> None:
    put(store, ("a", "1"), ("a", "2"))
    first = store.due(200.0, (), 1)[0]
    store.later(first, 300.0)
    assert due(store) == [("a", "2")]
    assert due(store, 301.0) == [("a", "1")]
    assert store.due(301.0, (), 1)[0].tries == 1


def test_the_same_event_waits_once_for_a_target(store: Store) -> None:
    put(store, ("a", "1"), ("a", "1"), ("b", "1"))
    put(store, ("a", "1"))
    assert store.waiting() == 2


def test_what_is_too_old_or_too_much_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_WAITING", 3)
    put(store, ("a", "1"), now_s=10.0)
    put(store, *(("b", str(number)) for number in range(5)))
    assert store.give_up(50.0) == {"a": 1, "b": 2}
    assert due(store) == [("b", "2")]


def test_a_file_that_cannot_be_read_is_told_as_an_error_of_gangline(store: Store) -> None:
    store.close()
    with pytest.raises(GanglineError, match=r"notifier\.sqlite cannot be read or written"):
        store.waiting()
    with pytest.raises(GanglineError, match=r"notifier\.sqlite cannot be read or written"):
        store.due(100.0, (), 1)
