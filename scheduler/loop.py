"""The loop: appends ticks, decides rounds, and appends them; or stands by until it is needed.

Several loops may run at once. Ticks count only from the ticker that took over last; of equal rounds the first one
counts; records of an older term are void. So a loop that wakes up late changes nothing.
"""

import logging
import time
from collections.abc import Callable

from gangline.events import codec
from gangline.events.codec import Undecodable, encode
from gangline.events.control import ClockTicked, TickerTookOver
from gangline.events.decisions import TermOpened
from gangline.events.ids import uuid7
from gangline.events.log import CONTROL, DECISIONS, Entry, Log, LogUnavailable
from gangline.events.types import Event, Meta
from gangline.scheduler.canonical import digest, to_bytes
from gangline.scheduler.decide import decide, next_due_us, round_is_due
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.evolve import evolve, fail
from gangline.scheduler.follow_loop import Follower, event_of
from gangline.scheduler.migrate import migrate
from gangline.scheduler.reducers.clock import MAX_STEP_US
from gangline.scheduler.snapshot_store import SnapshotStore
from gangline.scheduler.state import State

MIN_TICK_INTERVAL_S = 0.02
"""Inputs that come closer together share a round; far below what a launch takes."""

TAKEOVER_S = 3.0
"""A standby takes over when a tick has been due for so long and none came."""

READ_BACK_S = 30.0
"""A round that was acknowledged but cannot be read for so long means that the log is not well."""

SNAPSHOT_RECORDS = 5_000
"""A snapshot is written after so many records of control; folding them again takes a tenth of a second."""

POLL_S = 0.25
"""How long the loop waits for input before it looks at the other topic."""

logger = logging.getLogger(__name__)


class Loop:
    """One process that decides, or stands by to."""

    def __init__(
        self,
        log: Log,
        store: SnapshotStore,
        *,
        code_digest: str,
        wheel: str | None = None,
        open_term: bool = False,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Restore the state and follow to the end of decisions. `open_term` lets it open a term for its own code."""
        self.ticker = uuid7().hex()
        self._log = log
        self._code_digest = code_digest
        self._wheel = wheel
        self._open_term = open_term
        self._wall_us = wall_us
        self._monotonic_s = monotonic_s
        self.follower = Follower(log, store, code_digest)
        self._base: State | None = None
        self._working = State()
        self._folded = 0
        self._held = False
        self._scanned = 0
        self._ticker = ""
        self._tick_sent = False
        self._last_tick_s = self._monotonic_s()
        self._due_since_s: float | None = None

    @property
    def active(self) -> bool:
        """Whether this loop's ticks count, as far as it has read."""
        return not self._foreign and self._ticker == self.ticker

    @property
    def _foreign(self) -> bool:
        return self.follower.stale or self.follower.term_code != self._code_digest

    def step(self, timeout_s: float = POLL_S) -> None:
        """Take in what is new, decide what is due; wait up to `timeout_s` if there is nothing."""
        self.follower.read_decisions(timeout_s if self._foreign else 0.0)
        if self._foreign:
            if self._open_term:
                self._try_to_open()
            return
        self.follower.read_control(min(timeout_s, self._wait_s()))
        self._fold()
        if self.active:
            if self._tick_is_due():
                self._append_tick()
        elif self._takeover_is_due():
            self._append(TickerTookOver(meta=self._meta(), ticker=self.ticker))
            self._due_since_s = None

    def stop(self) -> None:
        """Write the boundary from which another code's term can start, and let the next ticker take over at once."""
        if not self._foreign and self.follower.terms.decided >= 0:
            self.follower.save_snapshot()
            if self.active:
                self._append(TickerTookOver(meta=self._meta(), ticker=""))
        self.follower.close()

    # --- folding and deciding ---

    def _fold(self) -> None:
        """Fold what came since the last round; decide at every tick that counts, if this loop is the ticker."""
        undecided = self.follower.undecided
        if self.follower.state is not self._base or self._ticker_changed():
            self._restart()
        while self._folded < len(undecided) and not self._held:
            record = undecided[self._folded]
            self._folded += 1
            try:
                event = event_of(record)
                self._working = evolve(self._working, record.index, event)
                self._note_tick(event)
            except (Undecodable, Inapplicable) as error:
                self._working = fail(self._working, record.index, str(error))
            if round_is_due(self._working):
                self._decide()

    def _restart(self) -> None:
        self._base = self._working = self.follower.state
        self._folded = 0
        self._held = False
        self._scanned = 0
        self._ticker = self._base.ticker
        self._ticker_changed()

    def _ticker_changed(self) -> bool:
        """Look ahead for the ticker that took over last: it decides the ticks of those before it, too."""
        before = self._ticker
        undecided = self.follower.undecided
        for position in range(self._scanned, len(undecided)):
            value = undecided[position].value
            if value.startswith(_TOOK_OVER):
                try:
                    self._ticker = _ticker_in(value)
                except Undecodable:
                    continue  # it will be quarantined
        self._scanned = len(undecided)
        if self._ticker != before:
            logger.info("the ticker is %s", "this loop" if self.active else self._ticker or "nobody")
        return self._ticker != before

    def _note_tick(self, event: Event) -> None:
        if not isinstance(event, ClockTicked):
            return
        if event.ticker == self.ticker:
            self._tick_sent = False
        if event.ticker == self._working.ticker:
            self._last_tick_s = self._monotonic_s()
            self._due_since_s = None

    def _decide(self) -> None:
        """Decide the tick that was folded last, or hold there until the ticker's round is read."""
        decided = decide(self._working, self.follower.terms.term)
        if decided.record is None:
            return
        if not self.active:
            self._held = True
            return
        self.follower.expected = decided
        self._log.append(DECISIONS, [Entry(b"", encode(decided.record))])
        self._read_back(decided.record.tick_index)
        self.follower.expected = None
        if self._foreign:
            self._held = True
            return
        if self.follower.folded_records >= SNAPSHOT_RECORDS:
            self.follower.save_snapshot()
        self._restart()

    def _read_back(self, tick_index: int) -> None:
        deadline_s = self._monotonic_s() + READ_BACK_S
        while self.follower.terms.decided < tick_index and not self._foreign:
            if not self.follower.read_decisions(timeout_s=0.05) and self._monotonic_s() > deadline_s:
                raise LogUnavailable(
                    f"round {tick_index} was acknowledged, but could not be read within {READ_BACK_S:.0f} s: "
                    "see whether the log's server is well"
                )

    # --- ticks ---

    def _tick_is_due(self) -> bool:
        since_s = self._monotonic_s() - self._last_tick_s
        if self._tick_sent:
            return False
        if self._working.awaiting_round:
            return since_s >= MIN_TICK_INTERVAL_S
        return self._time_is_due(since_s)

    def _time_is_due(self, since_s: float) -> bool:
        due_us = next_due_us(self._working)
        if due_us is None:
            return False
        since_us = int(since_s * 1_000_000)
        return since_us >= MAX_STEP_US or self._working.now_us + since_us >= due_us

    def _wait_s(self) -> float:
        """Return how long nothing can become due without new input."""
        if not self.active:
            return POLL_S
        if self._tick_sent or not self._working.awaiting_round:
            due_us = next_due_us(self._working)
            if self._tick_sent or due_us is None:
                return POLL_S
            left_us = min(due_us - self._working.now_us, MAX_STEP_US)
            return max(left_us / 1_000_000 - (self._monotonic_s() - self._last_tick_s), 0.0)
        return max(MIN_TICK_INTERVAL_S - (self._monotonic_s() - self._last_tick_s), 0.0)

    def _takeover_is_due(self) -> bool:
        now_s = self._monotonic_s()
        due = self._working.awaiting_round or self._time_is_due(now_s - self._last_tick_s)
        if not due:
            self._due_since_s = None
            return False
        if not self._ticker:
            return True
        if self._due_since_s is None:
            self._due_since_s = now_s
        return now_s - max(self._due_since_s, self._last_tick_s) >= TAKEOVER_S

    def _append_tick(self) -> None:
        self._append(ClockTicked(meta=self._meta(), ticker=self.ticker))
        self._tick_sent = True

    def _append(self, event: Event) -> None:
        self._log.append(CONTROL, [Entry(self.ticker.encode(), encode(event))])

    def _meta(self) -> Meta:
        return Meta(event_id=uuid7(), actor=f"ticker:{self.ticker}", at_us=self._wall_us())

    # --- terms ---

    def _try_to_open(self) -> None:
        """Open a term for this code from the end of what is decided, if that end is there as a snapshot."""
        self.follower.read_all_decisions()
        terms = self.follower.terms
        if not self._foreign:
            return
        boundary_sha256 = None
        if terms.decided >= 0:
            boundary = self.follower.boundary()
            if boundary is None:
                return
            boundary_sha256 = boundary.header.state_sha256
            state_sha256 = digest(migrate(boundary.state))
        else:
            state_sha256 = digest(to_bytes(State()))
        opened = TermOpened(
            meta=Meta(event_id=uuid7(), actor=f"scheduler:{self.ticker}", at_us=self._wall_us()),
            term=terms.term + 1,
            previous=terms.term,
            control_index=terms.decided,
            code_digest=self._code_digest,
            wheel=self._wheel,
            boundary_sha256=boundary_sha256,
            state_sha256=state_sha256,
        )
        self._log.append(DECISIONS, [Entry(b"", encode(opened))])
        self.follower.read_all_decisions()
        logger.info("term %d is open", self.follower.terms.term)


_TOOK_OVER = codec.header_of(TickerTookOver)


def _ticker_in(value: bytes) -> str:
    event = codec.decode(value)
    return event.ticker if isinstance(event, TickerTookOver) else ""
