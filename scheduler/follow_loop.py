"""Follows both topics: keeps the state after the last round that counts, and what came on control since.

Rounds are applied, never recomputed. What a term of other code decided cannot be folded here; then the follower only
keeps the terms, and waits for the snapshot at that term's end.
"""

import logging
from collections import deque

from gangline.events import codec, identity, terms
from gangline.events.codec import Undecodable
from gangline.events.decisions import InputQuarantined, RoundDecided, TermOpened
from gangline.events.log import CONTROL, DECISIONS, START, Log, LogCut, LogReplaced, Position, Reader, Record
from gangline.events.terms import NO_TERM
from gangline.events.types import Decision, Event
from gangline.scheduler.canonical import digest, from_bytes, to_bytes
from gangline.scheduler.decide import Decided
from gangline.scheduler.errors import Halted, Inapplicable
from gangline.scheduler.evolve import evolve, evolve_round, skip
from gangline.scheduler.migrate import migrate
from gangline.scheduler.snapshot_store import Header, Snapshot, SnapshotStore, bindings_of
from gangline.scheduler.state import State

READ_LIMIT = 1_000
"""Records read at once; bounds what is held between two looks at the other topic."""

logger = logging.getLogger(__name__)


class Follower:
    """The state just after the last round that counts (`state`), and the records of control behind it (`undecided`)."""

    def __init__(self, log: Log, store: SnapshotStore, code_digest: str) -> None:
        """Start from the newest verified snapshot and read `decisions` to its end.

        Raises LogCut or LogReplaced where the snapshot does not belong to this log, Halted where its rounds cannot be
        folded, and what the log raises.
        """
        self.log_id = identity.log_id(log)
        self._log = log
        self._store = store
        self._code_digest = code_digest
        self.terms = NO_TERM
        self.term_code = ""
        self.stale = False
        """Whether the last rounds are of other code, so that `state` is not up to them."""
        self.state = State()
        self.undecided: deque[Record] = deque()
        self.expected: Decided | None = None
        """The round that this process has appended and not read back yet."""
        self._after = START
        self._control: Reader = log.reader(CONTROL)
        self._decisions: Reader = log.reader(DECISIONS)
        self.folded_records = 0
        """Records of control folded since the last snapshot."""
        snapshot = store.newest()
        if snapshot is not None:
            self._check(snapshot)
            self._decisions = log.reader(DECISIONS, snapshot.decisions)
            self.terms = terms.Terms(term=snapshot.header.term, decided=snapshot.header.control_index)
            self.term_code = snapshot.header.code_digest
            self.stale = self.term_code != code_digest
            if not self.stale:
                self._rebase(from_bytes(snapshot.state), snapshot.control)
        self.read_all_decisions()

    def read_control(self, timeout_s: float = 0.0) -> None:
        """Take in what came on control."""
        if not self.stale:
            self.undecided.extend(self._control.read(READ_LIMIT, timeout_s=timeout_s))

    def read_decisions(self, timeout_s: float = 0.0) -> bool:
        """Take in what came on decisions, and say whether anything did."""
        records = self._decisions.read(READ_LIMIT, timeout_s=timeout_s)
        for record in records:
            self._take(record)
        return bool(records)

    def read_all_decisions(self) -> None:
        """Take in everything that was acknowledged on decisions before this call."""
        for records in self._decisions.read_to_end(READ_LIMIT):
            for record in records:
                self._take(record)

    def boundary(self) -> Snapshot | None:
        """Return the snapshot at the end of what is decided, from which another term can start."""
        found = self._store.newest()
        if found is None or (found.header.term, found.header.control_index) != (self.terms.term, self.terms.decided):
            return None
        return found

    def save_snapshot(self) -> None:
        """Write a snapshot of `state`. Raises SnapshotError."""
        state = to_bytes(self.state)
        header = Header(
            log_id=self.log_id,
            term=self.terms.term,
            control_index=self.state.control_index,
            control=(self._after.index, self._after.offset),
            decisions=(self._decisions.position.index, self._decisions.position.offset),
            last_event_id=self.state.last_event_id,
            code_digest=self.term_code,
            state_sha256=digest(state),
        )
        live = bindings_of(self.state, self.terms.term, self._decisions.position)
        self._store.save(Snapshot(header=header, state=state), live)
        self.folded_records = 0

    def close(self) -> None:
        """Release the readers."""
        self._control.close()
        self._decisions.close()

    def _rebase(self, state: State, control: Position) -> None:
        self._control.close()
        self._control = self._log.reader(CONTROL, control)
        self.undecided.clear()
        self.state = state
        self._after = control
        self.folded_records = 0

    def _check(self, snapshot: Snapshot) -> None:
        """Raise unless the record that the snapshot ends with still lies where it lay."""
        header = snapshot.header
        self._log.reader(CONTROL, snapshot.control).close()
        self._log.reader(DECISIONS, snapshot.decisions).close()
        reader = self._log.reader(CONTROL, Position(header.control_index, snapshot.control.offset - 1))
        try:
            found = next((records[0] for records in reader.read_to_end(1)), None)
        finally:
            reader.close()
        event = None if found is None else codec.decode(found.value)
        if not isinstance(event, Event) or event.meta.event_id != header.last_event_id:
            raise LogReplaced(
                f"record {header.control_index} of '{CONTROL}' is not the one that the newest snapshot ends with: the "
                "log was replaced or restored from another copy; restore the right one, or move the snapshots away"
            )

    def _take(self, record: Record) -> None:
        event = codec.decode(record.value)
        if not isinstance(event, TermOpened | RoundDecided):
            return
        admitted = terms.admit(self.terms, event)
        if admitted is None:
            return
        if isinstance(event, TermOpened):
            self._open(event)
        elif not self.stale:
            self._apply(event)
        self.terms = admitted

    def _open(self, opened: TermOpened) -> None:
        self.term_code = opened.code_digest
        if opened.code_digest != self._code_digest:
            self.stale = True
            self.undecided.clear()
            return
        state, control = State(), START
        if opened.boundary_sha256 is not None:
            snapshot = self._store.find(opened.boundary_sha256)
            if snapshot is None:
                raise Halted(
                    f"term {opened.term} starts from a snapshot that is not among those kept (state "
                    f"{opened.boundary_sha256[:12]}): bring it back, or rebuild it with the code of the term before"
                )
            state, control = from_bytes(migrate(snapshot.state)), snapshot.control
        found = digest(to_bytes(state))
        if found != opened.state_sha256:
            raise Halted(
                f"term {opened.term} starts from state {opened.state_sha256[:12]}, but this code makes {found[:12]} of "
                "the same boundary: it is not the code that opened the term"
            )
        self._rebase(state, control)
        self.stale = False

    def _apply(self, round_: RoundDecided) -> None:
        records = self._through(round_.tick_index)
        expected, self.expected = self.expected, None
        if expected is not None and expected.record is not None and expected.record.tick_index == round_.tick_index:
            if expected.record != round_:
                raise Halted(
                    f"the round of tick {round_.tick_index} was decided differently by another loop of the same code: "
                    "the core is not deterministic; keep the log and both machines' versions for a report"
                )
            self.state = expected.state
        else:
            decisions = [_decision(value, round_) for value in round_.decisions]
            named = {one.control_index for one in decisions if isinstance(one, InputQuarantined)}
            state = self.state
            for record in records:
                state = skip(state, record.index) if record.index in named else _fold(state, record)
            self.state = evolve_round(state, round_, decisions)
        self._after = records[-1].after
        self.folded_records += len(records)

    def _through(self, index: int) -> list[Record]:
        taken: list[Record] = []
        while not taken or taken[-1].index < index:
            if not self.undecided:
                self.read_control()
            if not self.undecided:
                for records in self._control.read_to_end(READ_LIMIT):
                    self.undecided.extend(records)
                    break
            if not self.undecided:
                raise LogCut(
                    f"round {index} is decided, but '{CONTROL}' ends at {self._control.position.index}: records are "
                    "missing; restore the log from a copy that has them"
                )
            taken.append(self.undecided.popleft())
        return taken


def _decision(value: bytes, round_: RoundDecided) -> Decision:
    decision = codec.decode(value)
    if not isinstance(decision, Decision):
        raise Halted(f"the round of tick {round_.tick_index} contains a {type(decision).__name__}")
    return decision


def _fold(state: State, record: Record) -> State:
    try:
        return evolve(state, record.index, event_of(record))
    except (Undecodable, Inapplicable) as error:
        raise Halted(
            f"record {record.index} of '{CONTROL}' cannot be applied ({error}), and its round does not say that it is "
            "skipped: this is not the code, or not the log, that decided the round"
        ) from error


def event_of(record: Record) -> Event:
    """Return what a record of control says. Raises Undecodable."""
    event = codec.decode(record.value)
    if not isinstance(event, Event):
        raise Undecodable(f"{type(event).__name__} is no event")
    return event
