"""`control` and `decisions` merged by index: what is decided, in the one order in which everyone applies it.

Round N (a RoundDecided of tick N that the terms admit) follows directly on record N of `control`, and `control` is read
through the last such round only. What a round quarantines is left out of its inputs; any other record that cannot be
decoded stops the reader, for skipping it would be a silent divergence. (Architecture, sections 3 and 4.)
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from gangline.events import codec, identity, terms
from gangline.events.codec import Undecodable
from gangline.events.control import ClockTicked, LogCreated
from gangline.events.decisions import InputQuarantined, RoundDecided, TermOpened
from gangline.events.log import (
    CONTROL,
    DECISIONS,
    START,
    Log,
    LogCut,
    LogDamaged,
    LogReplaced,
    LogTooNew,
    LogUnavailable,
    Position,
    Record,
)
from gangline.events.terms import NO_TERM, Terms
from gangline.events.types import Decision, Event

DECISIONS_BATCH = 64
"""Records of `decisions` held at once; a round may have 900 kB."""

CONTROL_BATCH = 1_000
"""Records of `control` read at once; those of one round are held together."""


class Input(NamedTuple):
    """A record of `control` and what it says."""

    record: Record
    event: Event


class Segment(NamedTuple):
    """What one round added to the history: apply `inputs` in order, then `decisions` in order."""

    opened: tuple[TermOpened, ...]
    """Terms that opened since the round before."""
    inputs: tuple[Input, ...]
    """Records of `control` behind the round before, through this round's tick, less those it quarantines."""
    round: RoundDecided
    record: Record
    """The round's own record."""
    decisions: tuple[Decision, ...]
    control: Position
    """Just behind the round's tick."""
    after: Position
    """Just behind the round on `decisions`."""
    terms: Terms


class HistoryReader:
    """Reads segments in order from given positions, which are those of a segment (or START). One thread's."""

    def __init__(
        self, log: Log, control: Position = START, decisions: Position = START, admitted: Terms = NO_TERM
    ) -> None:
        """Start behind a segment with these positions and terms.

        Raises LogAbsent or LogReplaced where there is no (one) log, LogCut if the log ends before a position.
        """
        self.log_id = identity.log_id(log)
        self._control = log.reader(CONTROL, control)
        self._decisions = log.reader(DECISIONS, decisions)
        self._terms = admitted
        self._behind = control
        self._opened: list[TermOpened] = []
        self._held: deque[Record] = deque()
        self._rounds: deque[Record] = deque()

    @property
    def control_position(self) -> Position:
        """Just behind the last segment's tick; what follows is not decided yet."""
        return self._behind

    @property
    def decisions_position(self) -> Position:
        """Just behind the last record of `decisions` that was looked at, which may be a void one or a TermOpened."""
        return Position(self._rounds[0].index, self._rounds[0].offset) if self._rounds else self._decisions.position

    @property
    def terms(self) -> Terms:
        """What the terms are at `decisions_position`."""
        return self._terms

    @property
    def opened(self) -> tuple[TermOpened, ...]:
        """Terms that opened behind the last segment."""
        return tuple(self._opened)

    def read(self, limit: int = DECISIONS_BATCH, *, timeout_s: float = 0.0) -> list[Segment]:
        """Return the next segments, at most `limit`; wait up to `timeout_s` for a record of `decisions`.

        Raises LogCut if `control` ends before a round's tick, LogReplaced if a round belongs to other inputs,
        LogDamaged for a record that cannot be decoded and is not quarantined, LogTooNew for one written by a newer
        version, and what the log's readers raise.
        """
        if not self._rounds:
            self._rounds.extend(self._decisions.read(DECISIONS_BATCH, timeout_s=timeout_s))
        taken: list[Segment] = []
        try:
            while len(taken) < limit and (segment := self._next()):
                taken.append(segment)
        except LogUnavailable:
            # What is complete is not lost with the rest, which the next call reads again.
            if not taken:
                raise
        return taken

    def read_to_end(self) -> Iterator[Segment]:
        """Yield segments until every record of `decisions` that was acknowledged before this call is taken in."""
        yield from iter(self._next, None)
        for records in self._decisions.read_to_end(DECISIONS_BATCH):
            self._rounds.extend(records)
            yield from iter(self._next, None)

    def close(self) -> None:
        """Release the readers. Twice is fine."""
        self._control.close()
        self._decisions.close()

    def _next(self) -> Segment | None:
        """Return the next segment of the rounds at hand, None if there is none. An error takes nothing."""
        while self._rounds:
            record = self._rounds[0]
            event = _decode(record, DECISIONS)
            if not isinstance(event, LogCreated | TermOpened | RoundDecided):
                raise LogDamaged(f"record {record.index} of '{DECISIONS}' is a {type(event).__name__}: not its place")
            admitted = None if isinstance(event, LogCreated) else terms.admit(self._terms, event)
            segment = self._segment(event, record, admitted) if admitted and isinstance(event, RoundDecided) else None
            self._rounds.popleft()
            if admitted:
                self._terms = admitted
            if segment:
                self._behind, self._opened = segment.control, []
                return segment
            if admitted and isinstance(event, TermOpened):
                self._opened.append(event)
        return None

    def _segment(self, decided: RoundDecided, record: Record, admitted: Terms) -> Segment:
        decisions = tuple(_decode_inner(value, record) for value in decided.decisions)
        quarantined = {one.control_index for one in decisions if isinstance(one, InputQuarantined)}
        records = self._through(decided.tick_index)
        inputs = tuple(
            Input(one, _event(_decode(one, CONTROL), one)) for one in records if one.index not in quarantined
        )
        tick = inputs[-1].event if inputs else None
        if (
            not isinstance(tick, ClockTicked)
            or tick.meta.event_id != decided.tick_event_id
            or inputs[-1].record.index != decided.tick_index
        ):
            raise LogReplaced(
                f"round {decided.tick_index} (record {record.index} of '{DECISIONS}') was decided on another "
                f"'{CONTROL}': its tick is not record {decided.tick_index}; restore both topics from the same copy"
            )
        for _ in records:
            self._held.popleft()
        after = records[-1].after
        return Segment(tuple(self._opened), inputs, decided, record, decisions, after, record.after, admitted)

    def _through(self, index: int) -> list[Record]:
        """Return the records of `control` through `index`, which are acknowledged since a round covers them."""
        while not self._held or self._held[-1].index < index:
            if not self._fill():
                end = self._control.position.index
                raise LogCut(
                    f"round {index} is decided, but '{CONTROL}' ends at {end}: records are missing; "
                    "restore the log from a copy that has them"
                )
        return list(itertools.takewhile(lambda record: record.index <= index, self._held)) or [self._held[0]]

    def _fill(self) -> bool:
        records = self._control.read(CONTROL_BATCH)
        if not records:
            records = next(iter(self._control.read_to_end(CONTROL_BATCH)), [])
        self._held.extend(records)
        return bool(records)


def _decode(record: Record, topic: str) -> Event | Decision:
    try:
        return codec.decode(record.value)
    except Undecodable as error:
        raise LogDamaged(
            f"record {record.index} of '{topic}' cannot be decoded and no round skips it ({error}): "
            "restore the log from a copy, or install the version of gangline that reads it"
        ) from error
    except LogTooNew as error:
        raise LogTooNew(f"record {record.index} of '{topic}': {error}") from error


def _decode_inner(value: bytes, record: Record) -> Decision:
    try:
        decision = codec.decode(value)
    except Undecodable as error:
        raise LogDamaged(
            f"a decision in record {record.index} of '{DECISIONS}' cannot be decoded ({error}): "
            "restore the log from a copy"
        ) from error
    except LogTooNew as error:
        raise LogTooNew(f"a decision in record {record.index} of '{DECISIONS}': {error}") from error
    if not isinstance(decision, Decision):
        raise LogDamaged(f"record {record.index} of '{DECISIONS}' holds a {type(decision).__name__} as a decision")
    return decision


def _event(event: Event | Decision, record: Record) -> Event:
    if not isinstance(event, Event):
        raise LogDamaged(f"record {record.index} of '{CONTROL}' is a {type(event).__name__}: not its place")
    return event
