"""The core under watch: every record is folded, every tick decided several times over, every invariant checked."""

from gangline.events import codec
from gangline.events.codec import Undecodable
from gangline.events.decisions import InputQuarantined, RoundDecided
from gangline.events.types import Decision, Event
from gangline.scheduler.canonical import from_bytes, to_bytes
from gangline.scheduler.decide import decide, round_is_due
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.evolve import evolve, evolve_round, fail, skip
from gangline.scheduler.state import State
from gangline.scheduler.views import Views
from gangline.simulator.fuzz.elastic_invariants import AT_RESIZE, nobody_waits_for_what_a_gang_grows_into
from gangline.simulator.fuzz.invariants import AFTER_ROUND, AT_DECISION
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.machines import Machines
from gangline.simulator.fuzz.oracle import AT_PLACEMENT, BETWEEN_ROUNDS
from gangline.simulator.fuzz.quota_invariants import AT_QUOTA
from gangline.simulator.fuzz.scene import Scene, Violation

TERM = 1
SNAPSHOTS_KEPT = 8


class Checked:
    """A log in memory and the core that follows it. `control` and `rounds` are what a log would hold, as bytes."""

    def __init__(self, machines: Machines | None = None) -> None:
        self.state = State()
        self.views = Views()
        self.ledger = Ledger()
        self.control: list[bytes] = []
        self.rounds: dict[int, bytes] = {}
        """By the index of their tick."""
        self.digests: dict[int, bytes] = {}
        """Canonical bytes just after each round, by the index of its tick."""
        self._machines = machines
        self._unread = 0
        """The first record of control that the ledger has not taken."""

    def append(self, event: Event) -> int:
        """Append a record of control and fold it; return its index."""
        return self.append_bytes(codec.encode(event))

    def append_bytes(self, value: bytes) -> int:
        """Append a record of control as bytes, which need not be an event."""
        index = len(self.control)
        self.control.append(value)
        self.state = _folded(self.state, index, value)
        return index

    def decide(self) -> tuple[Decision, ...]:
        """Decide the tick that was appended last, if it counts, and check everything. Raises Violation."""
        before, index = self.state, len(self.control) - 1
        if not round_is_due(before):
            return ()
        decided = decide(before, TERM, self.views)
        self._same(index, before, decided.record)
        if decided.record is None:
            if decided.state is not before:
                raise Violation("a_tick_without_a_round_leaves_no_trace", index, "the state is another one")
            self._read(index, ())
            return ()
        value = codec.encode(decided.record)
        self.rounds[index] = value
        self.state = decided.state
        self._watch(before, decided.record, decided.decisions, index)
        self.digests[index] = to_bytes(self.state)
        if to_bytes(_applied(before, value)) != self.digests[index]:
            raise Violation("a_round_folded_is_the_round_decided", index, "folding it gives another state")
        return decided.decisions

    def restart(self, rounds_back: int) -> None:
        """Start anew from the state just after an earlier round and the log behind it, as a new process does.

        Raises Violation if the state that comes of it is not the one that there was.
        """
        known = sorted(self.digests)[-SNAPSHOTS_KEPT:]
        state, first = State(), 0
        if known and rounds_back < len(known):
            snapshot = known[-1 - rounds_back]
            state, first = from_bytes(self.digests[snapshot]), snapshot + 1
        state = replayed(self.control, self.rounds, state, first)
        if to_bytes(state) != to_bytes(self.state):
            raise Violation(
                "snapshot_and_suffix_give_the_state", len(self.control) - 1, f"from record {first} on it differs"
            )
        self.state = state
        self.views = Views()

    def _same(self, index: int, before: State, record: RoundDecided | None) -> None:
        """Check that whoever decides this tick decides the same: with new views, from a snapshot of this moment."""
        expected = None if record is None else codec.encode(record)
        again = decide(from_bytes(to_bytes(before)), TERM).record
        if (None if again is None else codec.encode(again)) != expected:
            raise Violation("decisions_are_the_same_whoever_decides", index, f"kept views: {record}; new ones: {again}")

    def _watch(self, before: State, record: RoundDecided, decided: tuple[Decision, ...], index: int) -> None:
        self._read(index, decided)
        ledger = self.ledger
        for decision in decided:
            for check in (*AT_DECISION, *AT_QUOTA, *AT_PLACEMENT, *AT_RESIZE):
                for found in check(ledger, decision):
                    raise Violation(check.__name__, index, found)
            ledger.decide(decision)
        ledger.finish_round(more=record.more)
        scene = Scene(before, self.state, self.views, decided, record.more, ledger, self._machines)
        for test in (*AFTER_ROUND, *BETWEEN_ROUNDS, nobody_waits_for_what_a_gang_grows_into):
            for found in test(scene):
                raise Violation(test.__name__, index, found)

    def _read(self, index: int, decided: tuple[Decision, ...]) -> None:
        """Let the ledger take the records up to a tick, but for those that its round skips."""
        skipped = {one.control_index for one in decided if isinstance(one, InputQuarantined)}
        while self._unread <= index:
            if self._unread not in skipped:
                event = codec.decode(self.control[self._unread])
                if isinstance(event, Event):
                    self.ledger.take(self._unread, event)
            self._unread += 1


def _folded(state: State, index: int, value: bytes) -> State:
    try:
        event = codec.decode(value)
        if not isinstance(event, Event):
            raise Undecodable(f"{type(event).__name__} is no event")
        return evolve(state, index, event)
    except (Undecodable, Inapplicable) as error:
        return fail(state, index, str(error))


def _applied(before: State, value: bytes) -> State:
    record = codec.decode(value)
    if not isinstance(record, RoundDecided):
        raise TypeError(type(record))
    return evolve_round(before, record, _decisions(record))


def _decisions(record: RoundDecided) -> list[Decision]:
    return [inner for one in record.decisions if isinstance(inner := codec.decode(one), Decision)]


def replayed(control: list[bytes], rounds: dict[int, bytes], state: State, first: int) -> State:
    """Return the state after all records from `first` on, rounds applied as they were decided."""
    behind = first
    for index in range(first, len(control)):
        if index not in rounds:
            continue
        record = codec.decode(rounds[index])
        if not isinstance(record, RoundDecided):
            raise TypeError(type(record))
        decided = _decisions(record)
        skipped = {one.control_index for one in decided if isinstance(one, InputQuarantined)}
        for number in range(behind, index + 1):
            event = None if number in skipped else codec.decode(control[number])
            state = evolve(state, number, event) if isinstance(event, Event) else skip(state, number)
        state = evolve_round(state, record, decided)
        behind = index + 1
    for number in range(behind, len(control)):
        state = _folded(state, number, control[number])
    return state


def decided_anew(control: list[bytes], rounds: dict[int, bytes], digests: dict[int, bytes]) -> None:
    """Decide every tick of a log from its beginning. Raises Violation unless the same rounds and states come of it."""
    state, views = State(), Views()
    for index, value in enumerate(control):
        state = _folded(state, index, value)
        if not round_is_due(state):
            continue
        decided = decide(state, TERM, views)
        found = None if decided.record is None else codec.encode(decided.record)
        if found != rounds.get(index):
            raise Violation("a_replay_decides_the_same", index, f"{decided.record} instead")
        state = decided.state
        if index in digests and to_bytes(state) != digests[index]:
            raise Violation("a_replay_gives_the_same_states", index, "the state differs")
