"""Replays a log from its beginning, recomputing every round, and compares with what its loops wrote."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from gangline.events import codec, identity, terms
from gangline.events.codec import Undecodable, encode
from gangline.events.control import LogCreated
from gangline.events.decisions import Answer, AnswerRepeated, RoundDecided, TermOpened
from gangline.events.log import CONTROL, DECISIONS, Log
from gangline.events.terms import NO_TERM
from gangline.events.types import Decision
from gangline.scheduler.canonical import to_bytes
from gangline.scheduler.decide import decide, round_is_due
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.evolve import evolve, fail
from gangline.scheduler.follow_loop import Follower, event_of
from gangline.scheduler.snapshot_store import SnapshotStore
from gangline.scheduler.state import State
from tests.scheduler.loop_world import CODE, read_all


class Replayed(NamedTuple):
    """What a replay found. `states` are the canonical bytes just after each round, by the index of its tick."""

    states: dict[int, bytes]
    decisions: list[Decision]
    void: int
    """Records of decisions that do not count."""

    def answers(self) -> Counter[bytes]:
        """How often each command was answered, repeats of an answer apart."""
        return Counter(
            one.command_id for one in self.decisions if isinstance(one, Answer) and not isinstance(one, AnswerRepeated)
        )


def valid_rounds(log: Log) -> tuple[dict[int, RoundDecided], int]:
    """Return the rounds that count, by tick, and how many records are void (repeats, or of an old term)."""
    admitted, rounds, void = NO_TERM, dict[int, RoundDecided](), 0
    for record in read_all(log, DECISIONS):
        event = codec.decode(record.value)
        if isinstance(event, LogCreated):
            continue
        assert isinstance(event, RoundDecided | TermOpened)
        after = terms.admit(admitted, event)
        if after is None:
            void += 1
            if isinstance(event, RoundDecided) and event.term == admitted.term:
                assert rounds[event.tick_index] == event
        elif isinstance(event, RoundDecided):
            rounds[event.tick_index] = event
        admitted = after or admitted
    return rounds, void


def replay(log: Log, *, keep_states: bool = True) -> Replayed:
    """Decide every tick anew; assert that the log holds just these rounds, bit for bit, as far as it is decided."""
    rounds, void = valid_rounds(log)
    last = max(rounds, default=-1)
    state, states, decisions, seen = State(), dict[int, bytes](), list[Decision](), 0
    for record in read_all(log, CONTROL):
        if record.index > last:
            break
        try:
            state = evolve(state, record.index, event_of(record))
        except (Undecodable, Inapplicable) as error:
            state = fail(state, record.index, str(error))
        if not round_is_due(state):
            assert record.index not in rounds
            continue
        written = rounds.get(record.index)
        decided = decide(state, written.term if written is not None else 0)
        assert (decided.record is None) == (written is None), f"tick {record.index}"
        if decided.record is None or written is None:
            continue
        assert encode(decided.record) == encode(written), f"round {record.index}"
        state = decided.state
        seen += 1
        if keep_states or record.index == last:
            states[record.index] = to_bytes(state)
        for value in written.decisions:
            decision = codec.decode(value)
            assert isinstance(decision, Decision)
            decisions.append(decision)
    assert seen == len(rounds)
    return Replayed(states, decisions, void)


def folded(log: Log, folder: Path, code_digest: str = CODE) -> bytes:
    """Return the canonical bytes of the state that a new process restores, with the snapshots in `folder`."""
    follower = Follower(log, SnapshotStore(folder, identity.log_id(log)), code_digest)
    try:
        return to_bytes(follower.state)
    finally:
        follower.close()
