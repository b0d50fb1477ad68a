"""Folds `decisions` into what a node has to do: its live bindings, each with its stop or warning if there is one."""

import logging
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from gangline.agents.run_folder import AttemptKey
from gangline.events import codec
from gangline.events.codec import Undecodable
from gangline.events.decisions import (
    AttemptEnded,
    AttemptPreempted,
    AttemptStopOrdered,
    BindingsSnapshot,
    GangBound,
    NodeCheckOrdered,
    PreemptionOrdered,
    RoundDecided,
    RuntimeWarned,
    TermOpened,
)
from gangline.events.log import DECISIONS, START, Position, Record
from gangline.events.terms import NO_TERM, Terms, admit
from gangline.events.types import Share, Value
from gangline.schemas.contracts import contracts
from gangline.schemas.errors import GanglineError

_log = logging.getLogger(__name__)

_HEADERS = {contract.header: contract.name for contract in contracts()}
_FOLDED = {
    "GangBound",
    "AttemptStopOrdered",
    "PreemptionOrdered",
    "RuntimeWarned",
    "AttemptEnded",
    "AttemptPreempted",
    "NodeCheckOrdered",
}


class Binding(Value, frozen=True, kw_only=True):
    """A live attempt with shares on this node; `cause` names the round that bound it, if it was read there."""

    gang: GangBound
    shares: tuple[Share, ...]
    stop: AttemptStopOrdered | PreemptionOrdered | None = None
    cause: str | None = None
    ends_at_us: int | None = None
    """When it will be stopped by the scheduler's clock, its max_runtime being over, if it is to be told."""

    @property
    def key(self) -> AttemptKey:
        """The attempt."""
        return AttemptKey(self.gang.job_id, self.gang.attempt)


class Bindings(Value, frozen=True, kw_only=True):
    """What a node has to do after the records before `position`."""

    node_id: str
    terms: Terms = NO_TERM
    position: Position = START
    live: Mapping[AttemptKey, Binding] = {}
    check_index: int | None = None
    """The last command that asked to examine the node."""


def fold(bindings: Bindings, record: Record) -> Bindings:
    """Return the bindings after a record of `decisions`; records that are void change nothing.

    Raises what the codec raises: an agent does not skip what it cannot read.
    """
    event = codec.decode(record.value)
    terms = admit(bindings.terms, event) if isinstance(event, TermOpened | RoundDecided) else None
    live, check_index = bindings.live, bindings.check_index
    if terms is not None and isinstance(event, RoundDecided):
        for encoded in event.decisions:
            # An unknown header goes through decode, which says that the log is too new.
            if _HEADERS.get(encoded[: codec.HEADER_BYTES]) in _FOLDED or encoded[: codec.HEADER_BYTES] not in _HEADERS:
                decision = codec.decode(encoded)
                live = _apply(live, bindings.node_id, decision, f"{DECISIONS}:{record.index}", event.meta.at_us)
                if isinstance(decision, NodeCheckOrdered) and decision.node_id == bindings.node_id:
                    check_index = decision.check_index
    return Bindings(
        node_id=bindings.node_id,
        terms=terms or bindings.terms,
        position=record.after,
        live=live,
        check_index=check_index,
    )


def newest_snapshot(folder: Path, log_id: str, node_id: str) -> Bindings:
    """Return the bindings of the newest readable snapshot in `folder` (`bindings-<tick>-<term>.avro`), else none.

    A damaged one is named in a warning, and the one before it is taken.
    """
    for path in sorted(folder.glob("bindings-*-*.avro"), key=_age, reverse=True):
        try:
            snapshot = codec.decode(path.read_bytes())
            if not isinstance(snapshot, BindingsSnapshot) or snapshot.log_id != log_id:
                raise Undecodable("it is not a snapshot of this log's bindings")
            return _from_snapshot(snapshot, node_id)
        except (OSError, GanglineError) as error:
            _log.warning("%s is passed over: %s", path, error)
    return Bindings(node_id=node_id)


def _from_snapshot(snapshot: BindingsSnapshot, node_id: str) -> Bindings:
    live: Mapping[AttemptKey, Binding] = {}
    for attempt in snapshot.live:
        for encoded in (attempt.bound, attempt.stop):
            if encoded is not None:
                live = _apply(live, node_id, codec.decode(encoded), None, 0)
    return Bindings(
        node_id=node_id,
        terms=Terms(term=snapshot.term, decided=snapshot.tick_index),
        position=Position(snapshot.decisions_index, snapshot.decisions_offset),
        live=live,
    )


def _apply(
    live: Mapping[AttemptKey, Binding], node_id: str, decision: object, cause: str | None, at_us: int
) -> Mapping[AttemptKey, Binding]:
    match decision:
        case GangBound():
            shares = tuple(share for share in decision.shares if share.node_id == node_id)
            if not shares:
                return live
            return {
                **live,
                AttemptKey(decision.job_id, decision.attempt): Binding(gang=decision, shares=shares, cause=cause),
            }
        case AttemptStopOrdered() | PreemptionOrdered() | RuntimeWarned():
            key = AttemptKey(decision.job_id, decision.attempt)
            before = live.get(key)
            if before is None:
                return live
            if isinstance(decision, RuntimeWarned):
                return {**live, key: replace(before, ends_at_us=at_us + decision.left_us)}
            return {**live, key: replace(before, stop=decision)}
        case AttemptEnded() | AttemptPreempted():
            ended = AttemptKey(decision.job_id, decision.attempt)
            return {key: binding for key, binding in live.items() if key != ended} if ended in live else live
        case _:
            return live


def _age(path: Path) -> tuple[int, int]:
    """Order snapshots by term, then tick: a lower term's may have been written after a higher one had opened."""
    parts = path.stem.split("-")
    tick, term = parts[1], parts[2]
    return (int(term), int(tick)) if tick.isdigit() and term.isdigit() else (-1, -1)
