"""Follows the log, fills the outbox, and empties it: each target by itself, so that a dead one holds up no other."""

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import msgspec

from gangline.agents.notifier.delivery import Undelivered, deliver
from gangline.agents.notifier.notices import Ledger
from gangline.agents.notifier.routes import Routes
from gangline.agents.notifier.status import STATUS_S, Failing, failing
from gangline.agents.notifier.store import MAX_WAITING, Message, Stand, Store
from gangline.events.history import HistoryReader, Segment
from gangline.events.log import START, Log, LogReplaced
from gangline.events.terms import NO_TERM

BATCH_SEGMENTS = 64
"""Rounds in one transaction."""

MAX_PAST = MAX_WAITING
"""Messages about what was before the first start, which are kept in memory until they are stored all at once."""

MAX_SENDING = 16
"""Deliveries at a time, each to another target. One that hangs is given up after its time."""

SENDING_LOOK_S = 0.02
"""How long to wait for a delivery to end before the log is looked at again."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
"""Pauses of a message, and of a target that takes none, double from the first to the longest."""

SWEEP_S = 60.0
"""How often messages are looked for that are too old to be tried again."""

FORGET_S = 3600.0
"""After which a target that failed, and was not tried again, is not remembered."""

_log = logging.getLogger("gangline notifier")


class Notifier:
    """Tells what happens from where its store stands on. Belongs to one thread."""

    def __init__(
        self,
        log: Log,
        store: Store,
        routes: Routes,
        *,
        first_index: int | None = None,
        tell: Callable[[int, tuple[Failing, ...]], None] | None = None,
    ) -> None:
        """Begin where the store stands; the first time at the end of the log, or with what `first_index` brings.

        `tell` is told every STATUS_S how many messages wait, and who takes none.

        Raises LogCut if the log ends before that, LogReplaced if the store belongs to another log.
        """
        self._store = store
        self._routes = routes
        stand = store.stand()
        self._reader = (
            HistoryReader(log) if stand is None else HistoryReader(log, stand.control, stand.decisions, stand.terms)
        )
        log_id = self._reader.log_id
        if stand is not None and stand.log_id != log_id:
            raise LogReplaced(
                f"what the notifier keeps belongs to log {stand.log_id}, but this is log {log_id}: give it the log "
                "that it belongs to, or another --home"
            )
        self._stand = stand or Stand(log_id, START, START, NO_TERM)
        self._ledger = Ledger(log_id, store.jobs())
        self._pool = ThreadPoolExecutor(MAX_SENDING, "deliver")
        self._sending: dict[Future[None], Message] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """Of targets that take nothing: how often in a row, and when they are tried again (monotonic)."""
        self._errors: dict[str, str] = {}
        """What came of the last try, of targets that did not take it."""
        self._tell = tell
        self._tell_at_s = 0.0
        self._refused: set[str] = set()
        self._sweep_at_s = 0.0
        if stand is None:
            self._take_in_past(first_index)

    def _take_in_past(self, first_index: int | None) -> None:
        """Learn which jobs live, and tell nothing of what was before the notifier; in one transaction, or none."""
        messages: deque[tuple[str, str, bytes]] = deque(maxlen=MAX_PAST)
        told_in_all = 0
        for segment in self._reader.read_to_end():
            told = self._messages(segment)
            if first_index is not None and segment.round.tick_index >= first_index:
                messages += told
                told_in_all += len(told)
            self._stand = self._behind(segment)
        self._store.advance(self._stand, self._ledger.changed, messages, time.time())
        self._ledger.changed.clear()
        if told_in_all > len(messages):
            _log.error("the oldest %d messages are given up: they were too many", told_in_all - len(messages))
        begins = self._stand.control.index if first_index is None else first_index
        _log.warning(
            "tells what happens from record %d of the log on, of %d jobs so far", begins, len(self._ledger.jobs)
        )

    def step(self, *, timeout_s: float = 0.0) -> None:
        """Take in what is new on the log, waiting up to `timeout_s` for it, and move deliveries on.

        Raises what HistoryReader raises; deliveries go on with the next call.
        """
        self._collect()
        self._dispatch()
        segments = self._reader.read(BATCH_SEGMENTS, timeout_s=SENDING_LOOK_S if self._sending else timeout_s)
        if segments:
            messages = [message for segment in segments for message in self._messages(segment)]
            self._stand = self._behind(segments[-1])
            self._store.advance(self._stand, self._ledger.changed, messages, time.time())
            self._ledger.changed.clear()
            self._dispatch()

    def deliver(self, *, timeout_s: float) -> None:
        """Move deliveries on only, as while the log is away."""
        self._collect()
        self._dispatch()
        if self._sending:
            wait(self._sending, timeout_s, FIRST_COMPLETED)
        else:
            time.sleep(timeout_s)

    @property
    def is_idle(self) -> bool:
        """Whether no message waits."""
        return not self._sending and not self._store.waiting()

    def close(self) -> None:
        """Stop; what is on its way may arrive, and is sent again later."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._reader.close()

    def _behind(self, segment: Segment) -> Stand:
        return Stand(self._stand.log_id, segment.control, segment.after, segment.terms)

    def _messages(self, segment: Segment) -> list[tuple[str, str, bytes]]:
        found = []
        for notice, job in self._ledger.fold(segment):
            targets, refused = self._routes.targets(notice, job)
            for url in refused:
                if url not in self._refused and len(self._refused) < MAX_SENDING:
                    self._refused.add(url)
                    _log.warning("%s asks for %s, which the routes do not allow: it is not told", notice.job_id, url)
            body = msgspec.json.encode(notice)
            found += [(target.name, notice.event_id, body) for target in targets]
        return found

    def _dispatch(self) -> None:
        """Send what is due, of each target one message at a time, in the order of the log."""
        now_s = time.monotonic()
        self._say_how_it_stands(now_s)
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + SWEEP_S
            for name, count in self._store.give_up(time.time() - self._routes.keep * 3600).items():
                _log.error("%d messages for %s are given up: nobody took them", count, name)
            # Of a target that nothing was sent to for so long nothing waits any more.
            forgotten = [name for name, (_, until_s) in self._failures.items() if until_s + FORGET_S < now_s]
            for name in forgotten:
                del self._failures[name]
        free = MAX_SENDING - len(self._sending)
        if free <= 0:
            return
        busy = {message.target for message in self._sending.values()}
        busy |= {name for name, (_, until_s) in self._failures.items() if until_s > now_s}
        for message in self._store.due(time.time(), sorted(busy), free):
            target = self._routes.target(message.target)
            if target is None:
                _log.error("a message for %s is dropped: the routes do not have it any more", message.target)
                self._store.delivered(message)
                continue
            self._sending[self._pool.submit(deliver, target, message.event_id, message.body)] = message

    def _say_how_it_stands(self, now_s: float) -> None:
        if self._tell is None or now_s < self._tell_at_s:
            return
        self._tell_at_s = now_s + STATUS_S
        troubles = self._store.troubles()
        known = {one.target: self._errors[one.target] for one in troubles if one.target in self._errors}
        self._errors = known
        self._tell(self._store.waiting(), failing(troubles, known))

    def _collect(self) -> None:
        """Note which deliveries were taken, and when the others are tried again."""
        for future in [future for future in self._sending if future.done()]:
            message = self._sending.pop(future)
            error = future.exception()
            if error is None:
                self._store.delivered(message)
                self._errors.pop(message.target, None)
                if self._failures.pop(message.target, None):
                    _log.warning("%s takes messages again", message.target)
                continue
            self._errors[message.target] = str(error) or repr(error)
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(message.tries, 30), LONGEST_PAUSE_S)
            if not isinstance(error, Undelivered):
                _log.error("the delivery to %s broke: %r", message.target, error)
            if not isinstance(error, Undelivered) or error.of_target:
                self._target_failed(message.target, error)
                pause_s = FIRST_PAUSE_S
            else:
                _log.warning(
                    "%s does not take %s, tried again in %g s: %s", message.target, message.event_id, pause_s, error
                )
            self._store.later(message, time.time() + pause_s)

    def _target_failed(self, name: str, error: BaseException) -> None:
        """Let a target rest, twice as long each time; say so the first time."""
        count = self._failures.get(name, (0, 0.0))[0]
        if count == 0:
            _log.warning("%s takes no messages, they wait and are tried again: %s", name, error)
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(count, 30), LONGEST_PAUSE_S)
        self._failures[name] = (count + 1, time.monotonic() + pause_s)
