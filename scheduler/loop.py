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
from gangline.events.ids import uuid7
from gangline.events.log import CONTROL, DECISIONS, Entry, Log, LogUnavailable
from gangline.events.types import Event, Meta
from gangline.scheduler.decide import decide, round_is_due
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.evolve import evolve, fail
from gangline.scheduler.follow_loop import Follower, event_of
from gangline.scheduler.pace_loop import Pace
from gangline.scheduler.snapshot_store import SnapshotError, SnapshotStore
from gangline.scheduler.state import State
from gangline.scheduler.term_loop import TermOpener
from gangline.scheduler.views import Views
from gangline.schemas.contracts import contracts

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
        ticker: str | None = None,
        snapshot_records: int = SNAPSHOT_RECORDS,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Restore the state and follow to the end of decisions.

        `open_term` lets it open a term for its own code. `ticker` is the id of this process as a ticker, which it may
        go on with after the log was away. Raises what Follower raises.
        """
        self.ticker = ticker if ticker is not None else uuid7().hex()
        self.follower = Follower(log, store, code_digest)
        self._log = log
        self._terms = TermOpener(
            log,
            self.follower,
            code_digest=code_digest,
            wheel=wheel,
            allowed=open_term,
            actor=f"scheduler:{self.ticker}",
        )
        self._snapshot_records = snapshot_records
        self._wall_us = wall_us
        self._monotonic_s = monotonic_s
        self._pace = Pace(monotonic_s)
        self._noted = -1
        """Control index up to which ticks were noted; records may be folded more than once."""
        self._sent: bytes | None = None
        """The event_id of this loop's tick that it has not read yet."""
        self._base: State | None = None
        self._working = State()
        self._views = Views()
        self._folded = 0
        self._held = False
        self._scanned = 0
        self._ticker = ""
        self._told_ticker = ""

    @property
    def active(self) -> bool:
        """Whether this loop's ticks count, as far as it has read."""
        return not self.follower.foreign and self._ticker == self.ticker

    def step(self, timeout_s: float = POLL_S) -> None:
        """Take in what is new, decide what is due; wait up to `timeout_s` if there is nothing.

        Raises Halted, and what the log raises; then the loop is of no use any more.
        """
        self.follower.read_decisions(timeout_s if self.follower.foreign else 0.0)
        if self.follower.foreign:
            self._sent = None
            self._terms.stand_by(self._wall_us)
            return
        at_end = self.follower.read_control(min(timeout_s, self._wait_s()))
        self._fold()
        if self.active:
            if self._wait_s() <= 0:
                self._append_tick()
            return
        # Another one's round may have covered this loop's tick, so that it was never noted here.
        self._sent = None
        # Behind the end there may be a tick that was not read yet.
        if at_end and self._pace.takeover_is_due(self._working, vacant=not self._ticker):
            self._append(TickerTookOver(meta=self._meta(), ticker=self.ticker))
            self._pace.took_over()

    def stop(self) -> None:
        """Write the boundary from which another code's term can start, and let the next ticker take over at once.

        Raises SnapshotError if the boundary cannot be written, and what the log raises.
        """
        try:
            self.follower.read_all_decisions()
            if not self.follower.foreign and self.follower.terms.decided >= 0:
                try:
                    self.follower.save_snapshot()
                finally:
                    if self.active:
                        self._append(TickerTookOver(meta=self._meta(), ticker=""))
        finally:
            self.close()

    def close(self) -> None:
        """Release the readers, and leave the rest as a kill would. Twice is fine."""
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
                self._note(record.index, event)
            except (Undecodable, Inapplicable) as error:
                self._working = fail(self._working, record.index, str(error))
            if round_is_due(self._working):
                self._decide()

    def _restart(self) -> None:
        """Begin anew at the state after the last round."""
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
        if self._ticker != self._told_ticker:
            self._told_ticker = self._ticker
            logger.info("the ticker is %s", "this loop" if self.active else self._ticker or "nobody")
        return self._ticker != before

    def _note(self, index: int, event: Event) -> None:
        if not isinstance(event, ClockTicked) or index <= self._noted:
            return
        self._noted = index
        if event.meta.event_id == self._sent:
            self._sent = None
        if event.ticker == self._working.ticker:
            self._pace.ticked()

    def _decide(self) -> None:
        """Decide the tick that was folded last, or hold there until the ticker's round is read."""
        term = self.follower.terms.term
        decided = decide(self._working, term, self._views)
        if decided.record is None:
            return
        if not self.active:
            self._held = True
            return
        self.follower.expected = decided
        self._log.append(DECISIONS, [Entry(b"", encode(decided.record))])
        self._read_back(decided.record.tick_index, term)
        self.follower.expected = None
        if self.follower.terms.term != term:
            self._held = True  # the round may be void; the new term, if it is ours, decides the tick
            return
        if self.follower.folded_records >= self._snapshot_records:
            self._save_snapshot()
        self._restart()

    def _read_back(self, tick_index: int, term: int) -> None:
        deadline_s = self._monotonic_s() + READ_BACK_S
        while self.follower.terms.decided < tick_index and self.follower.terms.term == term:
            if not self.follower.read_decisions(timeout_s=0.05) and self._monotonic_s() > deadline_s:
                raise LogUnavailable(
                    f"round {tick_index} was acknowledged, but could not be read within {READ_BACK_S:.0f} s: "
                    "see whether the log's server is well"
                )

    def _save_snapshot(self) -> None:
        try:
            self.follower.save_snapshot()
        except SnapshotError as error:
            logger.warning("%s; scheduling goes on, the next try is %d records later", error, self._snapshot_records)

    # --- ticks ---

    def _wait_s(self) -> float:
        """Return how long nothing can become due without new input; at most 0 if a tick has to be appended now."""
        if not self.active or self._sent is not None:
            return POLL_S
        left_s = self._pace.left_s(self._working)
        return POLL_S if left_s is None else max(left_s, 0.0)

    def _append_tick(self) -> None:
        tick = ClockTicked(meta=self._meta(), ticker=self.ticker)
        self._append(tick)
        self._sent = tick.meta.event_id

    def _append(self, event: Event) -> None:
        self._log.append(CONTROL, [Entry(self.ticker.encode(), encode(event))])

    def _meta(self) -> Meta:
        return Meta(event_id=uuid7(), actor=f"ticker:{self.ticker}", at_us=self._wall_us())


_TOOK_OVER = tuple(contract.header for contract in contracts() if contract.name == TickerTookOver.__name__)


def _ticker_in(value: bytes) -> str:
    event = codec.decode(value)
    return event.ticker if isinstance(event, TickerTookOver) else ""
