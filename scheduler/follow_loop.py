"""Follows both topics: keeps the state after the last round that counts, and what came on control since.

Rounds are applied, never recomputed. What a term of other code decided cannot be folded here; then the follower only
keeps the terms, and waits for the snapshot at that term's end.
"""

from collections import deque

from gangline.events import codec, identity, terms
from gangline.events.codec import Undecodable
from gangline.events.control import LogCreated
from gangline.events.decisions import BindingsSnapshot, InputQuarantined, RoundDecided, TermOpened
from gangline.events.log import (
    CONTROL,
    DECISIONS,
    START,
    Log,
    LogCut,
    LogDamaged,
    LogReplaced,
    LogTooNew,
    Position,
    Reader,
    Record,
)
from gangline.events.terms import NO_TERM
from gangline.events.types import Decision, Event
from gangline.scheduler.canonical import digest, from_bytes, to_bytes
from gangline.scheduler.decide import Decided
from gangline.scheduler.errors import Halted, Inapplicable
from gangline.scheduler.evolve import evolve, evolve_round, skip
from gangline.scheduler.migrate import migrate
from gangline.scheduler.snapshot_store import Header, Snapshot, SnapshotStore, bindings_of
from gangline.scheduler.state import State

CONTROL_BATCH = 1_000
"""Records of `control` read at once; bounds what comes between two looks at the other topic."""

DECISIONS_BATCH = 64
"""Records of `decisions` held at once; a round may have 900 kB."""
LAST = 1 << 62


class Follower:
    """The state just after the last round that counts (`state`), and the records of control behind it (`undecided`)."""

    def __init__(self, log: Log, store: SnapshotStore, code_digest: str, *, through: int | None = None) -> None:
        """Start from the newest verified snapshot and read `decisions` to its end, or to the last round `through`.

        Raises LogCut or LogReplaced where the snapshot does not belong to this log, Halted where its rounds cannot be
        folded, and what the log raises.
        """
        self.log_id = identity.log_id(log)
        self._log = log
        self._store = store
        self._code_digest = code_digest
        self.terms = NO_TERM
        self.term_code = ""
        """The digest of the code that the open term belongs to; empty for no term."""
        self.state = State()
        self.undecided: deque[Record] = deque()
        self.expected: Decided | None = None
        """The round that this process has appended and not read back yet."""
        self.folded_records = 0
        """Records of control folded since the last snapshot."""
        self._most, self._over = LAST if through is None else through, False
        self._after = START
        self._control: Reader = log.reader(CONTROL)
        self._decisions: Reader = log.reader(DECISIONS)
        try:
            snapshot = store.newest(through)
            if snapshot is not None:
                self._restore(snapshot)
            self.read_all_decisions()
        except BaseException:
            self.close()
            raise

    @property
    def foreign(self) -> bool:
        """Whether the open term is of other code, so that `state` does not follow it; or there is none."""
        return self.term_code != self._code_digest

    def read_control(self, timeout_s: float = 0.0) -> bool:
        """Take in what came on control, and say whether that was all."""
        records = self._control.read(CONTROL_BATCH, timeout_s=timeout_s)
        self.undecided.extend(records)
        return len(records) < CONTROL_BATCH

    def read_decisions(self, timeout_s: float = 0.0) -> bool:
        """Take in what came on decisions, and say whether anything did."""
        records = self._decisions.read(DECISIONS_BATCH, timeout_s=timeout_s)
        for record in records:
            self._take(record)
        return bool(records)

    def read_all_decisions(self) -> None:
        """Take in everything that was acknowledged on decisions before this call."""
        for records in self._decisions.read_to_end(DECISIONS_BATCH):
            for record in records:
                self._take(record)
            if self._over:
                return

    def before(self, round_: RoundDecided) -> State:
        """Return the state at the tick of a round, the next one, before anything of it was decided."""
        return self._folded(self._through(round_.tick_index), [_decision(value, round_) for value in round_.decisions])

    def boundary(self) -> Snapshot | None:
        """Return the snapshot at the end of what is decided, from which another term can start."""
        return self._store.at(self.terms.decided, self.terms.term)

    def save_snapshot(self) -> None:
        """Write a snapshot of `state`. Raises SnapshotError."""
        self.folded_records = 0
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
        self._store.save(Snapshot(header=header, state=state), self.bindings())

    def bindings(self) -> BindingsSnapshot:
        """Return what agents start from, as of `state`."""
        return bindings_of(self.state, self.terms.term, self._decisions.position)

    def close(self) -> None:
        """Release the readers."""
        self._control.close()
        self._decisions.close()

    def _restore(self, snapshot: Snapshot) -> None:
        self._check(snapshot)
        self._decisions.close()
        self._decisions = self._log.reader(DECISIONS, snapshot.decisions)
        self.terms = terms.Terms(term=snapshot.header.term, decided=snapshot.header.control_index)
        self.term_code = snapshot.header.code_digest
        if not self.foreign:
            self._rebase(from_bytes(snapshot.state), snapshot.control)

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
        try:
            event = None if found is None else event_of(found)
        except (Undecodable, LogTooNew):
            event = None
        if event is None or event.meta.event_id != header.last_event_id:
            raise LogReplaced(
                f"record {header.control_index} of '{CONTROL}' is not the one that the newest snapshot ends with: the "
                "log was replaced or restored from another copy; restore the right one, or move the snapshots away"
            )

    def _take(self, record: Record) -> None:
        event = _decoded(record, DECISIONS)
        if isinstance(event, LogCreated):
            return
        if not isinstance(event, TermOpened | RoundDecided):
            raise Halted(f"record {record.index} of '{DECISIONS}' is a {type(event).__name__}: that is not its place")
        admitted = terms.admit(self.terms, event)
        index = event.tick_index if isinstance(event, RoundDecided) else event.control_index
        self._over = self._over or (admitted is not None and index > self._most)
        if admitted is None or self._over:
            return
        if isinstance(event, TermOpened):
            self._open(event)
        elif not self.foreign:
            self._apply(event)
        self.terms = admitted

    def _open(self, opened: TermOpened) -> None:
        self.term_code = opened.code_digest
        if self.foreign:
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
        if (found, state.control_index) != (opened.state_sha256, opened.control_index):
            raise Halted(
                f"term {opened.term} starts at control index {opened.control_index} from state "
                f"{opened.state_sha256[:12]}, but this code makes {found[:12]} at {state.control_index} of the same "
                "boundary: it is not the code that opened the term"
            )
        self._rebase(state, control)

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
            self.state = evolve_round(self._folded(records, decisions), round_, decisions)
        self._after = records[-1].after
        self.folded_records += len(records)

    def _folded(self, records: list[Record], decisions: list[Decision]) -> State:
        """Return the state with these records of control folded, but for those that their round skips."""
        named = {one.control_index for one in decisions if isinstance(one, InputQuarantined)}
        state = self.state
        for record in records:
            state = skip(state, record.index) if record.index in named else _fold(state, record)
        return state

    def _through(self, index: int) -> list[Record]:
        taken: list[Record] = []
        while not taken or taken[-1].index < index:
            if not self.undecided:
                self.read_control()
            if not self.undecided:
                for records in self._control.read_to_end(CONTROL_BATCH):
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
    try:
        decision = codec.decode(value)
    except Undecodable as error:
        raise LogDamaged(f"the round of tick {round_.tick_index} cannot be decoded ({error})") from error
    except LogTooNew as error:
        raise LogTooNew(f"the round of tick {round_.tick_index}: {error}") from error
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
    """Return what a record of control says. Raises Undecodable, and LogTooNew for what newer code wrote."""
    event = _decode(record, CONTROL)
    if not isinstance(event, Event):
        raise Undecodable(f"{type(event).__name__} is no event")
    return event


def _decoded(record: Record, topic: str) -> Event | Decision:
    try:
        return _decode(record, topic)
    except Undecodable as error:
        raise LogDamaged(
            f"record {record.index} of '{topic}' cannot be decoded ({error}): restore the log from a copy"
        ) from error


def _decode(record: Record, topic: str) -> Event | Decision:
    try:
        return codec.decode(record.value)
    except LogTooNew as error:
        raise LogTooNew(f"record {record.index} of '{topic}': {error}") from error
