"""Sends a command to `control` and follows `decisions` for its answer."""

import getpass
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gangline.events import codec, identity, ids
from gangline.events.control import COMMANDS
from gangline.events.decisions import (
    Answer,
    BindingsSnapshot,
    CommandExpired,
    CommandRefused,
    JobRejected,
    PolicyRefused,
    RoundDecided,
    TermOpened,
)
from gangline.events.log import CONTROL, DECISIONS, START, Entry, Log, Position, Record
from gangline.events.sqlite import SqliteLog
from gangline.events.terms import NO_TERM, Terms, admit
from gangline.events.types import Event, Meta
from gangline.schemas.contracts import contracts
from gangline.schemas.errors import Refused, TimedOut, UsageError

ANSWER_WAIT_S = 5.0
"""How long a command waits for its answer. A running scheduler takes milliseconds, a standby takes over in 3 s."""

POLL_S = 1.0
"""How long one wait for a record lasts."""

MAX_BATCH = 1_000
"""Commands sent at once, in one transaction of the log: their answers fill about one round."""

MAX_SNAPSHOTS_TRIED = 3
"""As many as the scheduler keeps."""


class Answered(NamedTuple):
    """A command's answer, and the round that gave it."""

    answer: Answer
    tick_index: int


def new_meta() -> Meta:
    """Return the meta of a new command of this user."""
    return Meta(event_id=ids.uuid7(), command_id=ids.uuid7(), actor=f"user:{_user()}", at_us=time.time_ns() // 1000)


@cache
def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


class Commands:
    """Sends commands to one log. `snapshots` is where its scheduler leaves snapshots, for a short way to the end."""

    def __init__(self, log: Log, snapshots: Path) -> None:
        """Find the end of `decisions`, so that nothing is missed after a command is sent."""
        self.log_id = identity.log_id(log)
        self._log = log
        start, self._terms = _recent(snapshots / self.log_id, self.log_id)
        self._reader = log.reader(DECISIONS, start)
        for records in self._reader.read_to_end():
            for record in records:
                self._round(record)

    def send(self, command: Event, *, key: str, timeout_s: float = ANSWER_WAIT_S) -> Answered:
        """Append a command and return its answer.

        Raises TimedOut, naming where it was recorded, if no round answers within `timeout_s`.
        """
        return self.send_all([(key, command)], timeout_s=timeout_s)[0]

    def send_all(self, keyed: Sequence[tuple[str, Event]], *, timeout_s: float = ANSWER_WAIT_S) -> list[Answered]:
        """Append commands, each with its key, in one batch of at most MAX_BATCH; return their answers in this order.

        Raises UsageError for a larger batch; TimedOut, naming where the first without an answer was recorded, if no
        round answers within `timeout_s`.
        """
        if len(keyed) > MAX_BATCH:
            raise UsageError(f"{len(keyed):,} commands at once: send at most {MAX_BATCH:,}, and the others after them")
        command_ids = [_command_id(command) for _, command in keyed]
        addresses = self._log.append(CONTROL, [Entry(key.encode(), codec.encode(command)) for key, command in keyed])
        waiting = set(command_ids)
        found: dict[bytes, Answered] = {}
        deadline = time.monotonic() + timeout_s
        while True:
            for record in self._reader.read(timeout_s=min(POLL_S, max(0.0, deadline - time.monotonic()))):
                decided = self._round(record)
                if decided is None:
                    continue
                for answer in _answers(decided):
                    if answer.command_id in waiting:
                        found.setdefault(answer.command_id, Answered(answer, decided.tick_index))
            if len(found) == len(waiting):
                return [found[command_id] for command_id in command_ids]
            if time.monotonic() >= deadline:
                first = next(place for place, command_id in enumerate(command_ids) if command_id not in found)
                index = index_at(self._log, addresses[first].offset)
                raise TimedOut(
                    f"recorded at {index}, not yet decided: no scheduler answered within {timeout_s:g} s. It will be "
                    "decided when one runs: `gangline up`, or `gangline doctor` to see what is wrong"
                )

    def close(self) -> None:
        """Release the reader. Twice is fine."""
        self._reader.close()

    def _round(self, record: Record) -> RoundDecided | None:
        """Return the round in a record if it is one that counts."""
        event = codec.decode(record.value)
        admitted = admit(self._terms, event) if isinstance(event, TermOpened | RoundDecided) else None
        if admitted is None:
            return None
        self._terms = admitted
        return event if isinstance(event, RoundDecided) else None


def refuse_if_turned_away(answered: Answered) -> None:
    """Raise Refused, with the reason and the way out, for an answer that is a no."""
    answer = answered.answer
    if isinstance(answer, JobRejected | CommandRefused | PolicyRefused):
        raise Refused(f"rejected at {answer.control_index}: {answer.message}")
    if isinstance(answer, CommandExpired):
        raise Refused(
            f"expired at {answer.control_index}: the command is too old, or this machine's clock is wrong; set the "
            "clock and try again"
        )


def index_at(log: Log, offset: int) -> int:
    """Return the dense index of the record of `control` at an offset; where offsets have gaps it has to be counted."""
    if isinstance(log, SqliteLog):
        return offset
    reader = log.reader(CONTROL)
    try:
        for records in reader.read_to_end():
            for record in records:
                if record.offset >= offset:
                    return record.index
        return reader.position.index
    finally:
        reader.close()


def _command_id(command: Event) -> bytes:
    if not isinstance(command, COMMANDS) or command.meta.command_id is None:
        raise TypeError(f"{type(command).__name__} is no command")
    return command.meta.command_id


def _answers(decided: RoundDecided) -> Iterator[Answer]:
    for value in decided.decisions:
        if value.startswith(_ANSWERS):
            decision = codec.decode(value)
            if isinstance(decision, Answer):
                yield decision


_ANSWERS = tuple(contract.header for contract in contracts() if issubclass(codec.type_of[contract.name], Answer))
"""What answers begin with, in any version: a round holds much else."""


def _recent(folder: Path, log_id: str) -> tuple[Position, Terms]:
    """Return a position of `decisions` near its end, with the terms there; the beginning if nothing says better."""

    def age(path: Path) -> tuple[int, ...]:
        return tuple(int(part) for part in path.stem.split("-")[1:] if part.isdigit())

    for path in sorted(folder.glob("bindings-*-*.avro"), key=age, reverse=True)[:MAX_SNAPSHOTS_TRIED]:
        try:
            found = codec.decode(path.read_bytes())
        except (OSError, codec.Undecodable):
            continue
        if isinstance(found, BindingsSnapshot) and found.log_id == log_id:
            return (
                Position(found.decisions_index, found.decisions_offset),
                Terms(term=found.term, decided=found.tick_index),
            )
    return START, NO_TERM
