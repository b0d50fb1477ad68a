"""Any past moment from the log: the state just after a round, what was decided of a job, and why it was placed so."""

from collections.abc import Iterator
from typing import NamedTuple

from gangline.events import codec
from gangline.events.decisions import GangBound, RoundDecided, TermOpened
from gangline.events.log import DECISIONS, Log, Record
from gangline.events.terms import NO_TERM, admit
from gangline.events.types import Decision
from gangline.scheduler.evolve import apply_decision
from gangline.scheduler.explanation.story import Chapter, chapter, why_there
from gangline.scheduler.follow_loop import Follower
from gangline.scheduler.snapshot_store import SnapshotStore
from gangline.scheduler.state import State
from gangline.schemas.errors import GanglineError

DECISIONS_BATCH = 64
"""Records of `decisions` held at once; a round may have 900 kB."""


class OtherCode(GanglineError):
    """A moment was decided by another version of the code."""


class Told(NamedTuple):
    """What was decided of a job in a round."""

    tick_index: int
    at_us: int
    chapter: Chapter


class Bound(NamedTuple):
    """The last binding of a job: its round, and its place among that round's decisions."""

    round_: RoundDecided
    ordinal: int


class Story(NamedTuple):
    """All that was decided of a job up to a moment."""

    told: list[Told]
    bound: Bound | None


def state_at(log: Log, store: SnapshotStore, code_digest: str, through: int | None = None) -> State:
    """Return the state just after the last round up to a control index, or after the last of all.

    Raises OtherCode where that was decided by another version of the code.
    """
    follower = Follower(log, store, code_digest, through=through)
    follower.close()
    _require_own(follower)
    return follower.state


def rounds(log: Log, *, naming: str = "") -> Iterator[RoundDecided]:
    """Yield the rounds that count, in their order; only those with a text in them, if one is given."""
    terms = NO_TERM
    reader = log.reader(DECISIONS)
    try:
        for records in reader.read_to_end(DECISIONS_BATCH):
            for record in records:
                event = _event(record)
                admitted = None if event is None else admit(terms, event)
                if admitted is None:
                    continue
                terms = admitted
                if isinstance(event, RoundDecided) and (not naming or naming.encode() in record.value):
                    yield event
    finally:
        reader.close()


def _event(record: Record) -> RoundDecided | TermOpened | None:
    event = codec.decode(record.value)
    return event if isinstance(event, RoundDecided | TermOpened) else None


def index_at_time(log: Log, at_us: int) -> int | None:
    """Return the tick of the last round decided by a time, by the ticker's clock; None if none was."""
    found = None
    for round_ in rounds(log):
        if round_.meta.at_us > at_us:
            break
        found = round_.tick_index
    return found


def story_of(log: Log, job_id: str, through: int | None = None) -> Story:
    """Return what was decided of a job up to a control index, and its last binding."""
    told: list[Told] = []
    bound: Bound | None = None
    for round_ in rounds(log, naming=job_id.partition(".")[0]):
        if through is not None and round_.tick_index > through:
            break
        for ordinal, value in enumerate(round_.decisions):
            decision = codec.decode(value)
            if not isinstance(decision, Decision):
                continue
            found = chapter(decision, job_id)
            if found is not None:
                told.append(Told(round_.tick_index, round_.meta.at_us, found))
            if isinstance(decision, GangBound) and decision.job_id == job_id:
                bound = Bound(round_, ordinal)
    return Story(told, bound)


def why_bound_there(log: Log, store: SnapshotStore, code_digest: str, bound: Bound) -> list[str]:
    """Return why a gang was placed where it was, from the state just before that. Raises OtherCode."""
    follower = Follower(log, store, code_digest, through=bound.round_.tick_index - 1)
    try:
        _require_own(follower)
        state = follower.before(bound.round_)
    finally:
        follower.close()
    for value in bound.round_.decisions[: bound.ordinal]:
        decision = codec.decode(value)
        if isinstance(decision, Decision):
            state = apply_decision(state, decision)
    binding = codec.decode(bound.round_.decisions[bound.ordinal])
    return why_there(state, binding) if isinstance(binding, GangBound) else []


def _require_own(follower: Follower) -> None:
    if follower.foreign:
        code = f"code {follower.term_code[:12]}" if follower.term_code else "no code yet"
        raise OtherCode(
            f"what was decided then is of another version ({code}, term {follower.terms.term}): ask the gangline that "
            "decided it, by running this command with that version installed"
        )
