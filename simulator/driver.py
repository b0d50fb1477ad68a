"""Drives the real core in virtual time: appends to a control sequence, ticks, decides, and writes a log if given one.

No part of the core is copied, and none knows that it is simulated: events are evolved one by one, and every tick is
decided as a loop decides it. A log written here passes as a real one, and a replay of it gives the same rounds.
"""

from typing import Self

from msgspec.structs import replace

from gangline.events import codec, ids
from gangline.events.control import ClockTicked, LogCreated, RanksExited, RanksStarted, TickerTookOver
from gangline.events.decisions import RoundDecided, TermOpened
from gangline.events.identity import FORMAT
from gangline.events.log import CONTROL, DECISIONS, Entry, Log
from gangline.events.types import Decision, Event, Meta, RankExit
from gangline.scheduler.canonical import digest, to_bytes
from gangline.scheduler.code_store import code_digest
from gangline.scheduler.decide import decide, next_due_us
from gangline.scheduler.errors import Halted, Inapplicable
from gangline.scheduler.evolve import evolve, fail
from gangline.scheduler.reducers.clock import MAX_STEP_US
from gangline.scheduler.state import State
from gangline.scheduler.views import Views

TICKER = "simulator"
ACTOR = "simulator"
MAX_TICKS_AT_ONCE = 10_000
"""Ticks without time passing, while something is due at once; more mean that the core never gets done."""


class Driver:
    """A log in virtual time and the core that reads it. `at_us` is the clock of everyone in it."""

    def __init__(self, *, log_id: str, at_us: int, log: Log | None = None) -> None:
        """Begin a log at a time. Where `log` is given, it is an empty one, and everything is written to it."""
        self.log_id = log_id
        self.at_us = at_us
        self.state = State()
        self._views = Views()
        self.events = 0
        """Records of control so far, and so the index of the next one."""
        self.rounds = 0
        self.term = 0
        self._commands = 0
        self._log = log
        self._unwritten: list[Entry] = []
        created = LogCreated(meta=self.meta(), log_id=log_id, format=FORMAT)
        if log is not None:
            log.append(DECISIONS, [Entry(log_id.encode(), codec.encode(created))])
        self.append(created)
        self.open_term()
        self.append(TickerTookOver(meta=self.meta(), ticker=TICKER))

    @classmethod
    def going_on(cls, state: State) -> Self:
        """Go on from just after a round of another log, without writing to it: what would happen from there."""
        driver = object.__new__(cls)
        driver.log_id, driver.at_us = state.log_id, state.ticked_at_us
        driver.state, driver._views = state, Views()
        driver.events, driver.rounds, driver.term, driver._commands = state.control_index + 1, 0, 0, 0
        driver._log, driver._unwritten = None, []
        driver.append(TickerTookOver(meta=driver.meta(), ticker=TICKER))
        return driver

    def meta(self, actor: str = ACTOR) -> Meta:
        """Return the meta of the next record, said now."""
        return Meta(event_id=ids.derived(self.log_id, self.events, "event"), actor=actor, at_us=self.at_us)

    def command_meta(self, actor: str = ACTOR) -> Meta:
        """Return the meta of a command made now: its id is a UUIDv7 of virtual time, the same in every run."""
        self._commands += 1
        command_id = ids.uuid7_of(self.at_us // 1000, ids.derived(self.log_id, self._commands, "command")[6:])
        return replace(self.meta(actor), command_id=command_id)

    def append(self, event: Event) -> None:
        """Append a record of control and fold it."""
        try:
            self.state = evolve(self.state, self.events, event)
        except Inapplicable as error:
            self.state = fail(self.state, self.events, str(error))
        self.events += 1
        if self._log is not None:
            self._unwritten.append(Entry(event.meta.actor.encode(), codec.encode(event)))

    def ranks_started(self, job_id: str, attempt: int, node_id: str) -> None:
        """Append what a node's agent says when it has started its ranks of a gang."""
        meta = self.meta(f"agent:{node_id}")
        self.append(RanksStarted(meta=meta, job_id=job_id, attempt=attempt, node_id=node_id, run_dir="/run"))

    def ranks_exited(
        self, job_id: str, attempt: int, node_id: str, exits: tuple[RankExit, ...], *, gone: bool = True
    ) -> None:
        """Append what a node's agent says when ranks have exited; `gone` if these were the last there."""
        meta = self.meta(f"agent:{node_id}")
        self.append(RanksExited(meta=meta, job_id=job_id, attempt=attempt, node_id=node_id, exits=exits, gone=gone))

    def tick(self, at_us: int) -> tuple[Decision, ...]:
        """Append the tick of this time and decide its round; more ticks follow while something is due at once.

        Raises Halted if that never ends.
        """
        self.at_us = at_us
        decisions = self._decide()
        for _ in range(MAX_TICKS_AT_ONCE):
            if self.state.awaiting_round:
                return decisions
            due_us = next_due_us(self.state)
            if due_us is None or due_us > self.state.now_us:
                return decisions
            decisions += self._decide()
        raise Halted(f"after {MAX_TICKS_AT_ONCE:,} ticks without time passing, something is still due at once")

    def left_us(self) -> int | None:
        """Return after how long a tick has to follow on the last one, if nothing is appended; None if never."""
        due_us = next_due_us(self.state)
        return None if due_us is None else min(max(due_us - self.state.now_us, 0), MAX_STEP_US)

    def _decide(self) -> tuple[Decision, ...]:
        self.append(ClockTicked(meta=self.meta(), ticker=TICKER))
        decided = decide(self.state, self.term, self._views)
        if decided.record is None:
            return ()
        self.rounds += 1
        self.state = decided.state
        self._write(decided.record)
        return decided.decisions

    def _write(self, record: RoundDecided | TermOpened) -> None:
        """Write a record of decisions, behind what it follows from."""
        if self._log is not None:
            self.flush()
            self._log.append(DECISIONS, [Entry(b"", codec.encode(record))])

    def flush(self) -> None:
        """Write what is appended and not written yet; the last ticks of a log may have no round."""
        if self._log is not None and self._unwritten:
            self._log.append(CONTROL, self._unwritten)
            self._unwritten = []

    def open_term(self) -> None:
        """Open the next term: what is decided from here on is decided by this code."""
        self.term += 1
        if self._log is None:
            return
        first = self.term == 1
        meta = Meta(event_id=ids.derived(self.log_id, self.term - 1, "term"), actor=ACTOR, at_us=self.at_us)
        opened = TermOpened(
            meta=meta,
            term=self.term,
            previous=self.term - 1,
            control_index=-1 if first else self.state.tick_index,
            code_digest=code_digest(),
            wheel=None,
            boundary_sha256=None,
            state_sha256=digest(to_bytes(State() if first else self.state)),
        )
        self._write(opened)
