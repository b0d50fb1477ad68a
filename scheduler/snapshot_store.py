"""Snapshots of the state just after a round, and of the bindings that agents start from, as files.

`<folder>/<log_id>/<index>-<term>-<sha256>.snap` holds a header and the canonical bytes; the name's SHA-256 is that of
the file. A file appears whole or not at all: temporary file, fsync, rename, fsync of the folder.
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.events.codec import encode
from gangline.events.decisions import BindingsSnapshot, LiveAttempt
from gangline.events.ids import derived
from gangline.events.log import Position
from gangline.events.types import Meta, Value
from gangline.scheduler.canonical import digest
from gangline.scheduler.state import State
from gangline.schemas.errors import GanglineError

KEPT = 3
"""The newest so many are kept, and the last one of every term (its boundary). Three survive two damaged ones."""

TEMPORARY_KEPT_S = 3600
"""A temporary file that is older was left by a process that died; writing one takes seconds."""

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d+)-(\d+)-([0-9a-f]{64})\.snap")
_BINDINGS_NAME = re.compile(r"bindings-(\d+)-(\d+)\.avro")


class SnapshotError(GanglineError):
    """A snapshot cannot be written."""


class Header(Value, frozen=True, kw_only=True):
    """Where a snapshot belongs."""

    log_id: str
    term: int
    control_index: int
    control: tuple[int, int]
    """Dense index and offset of the next record of control."""
    decisions: tuple[int, int]
    last_event_id: bytes
    """Of the control record at `control_index`."""
    code_digest: str
    """Of the code that wrote the state."""
    state_sha256: str


class Snapshot(Value, frozen=True, kw_only=True):
    """A verified snapshot."""

    header: Header
    state: bytes

    @property
    def control(self) -> Position:
        """The next record of control."""
        return Position(*self.header.control)

    @property
    def decisions(self) -> Position:
        """The next record of decisions."""
        return Position(*self.header.decisions)


class _Name(NamedTuple):
    control_index: int
    term: int
    sha256: str
    path: Path


class SnapshotStore:
    """The snapshots of one log in a folder. Several loops may use it at once."""

    def __init__(self, folder: Path, log_id: str) -> None:
        """Use `<folder>/<log_id>`, made when first written to."""
        self._log_id = log_id
        self._folder = folder / log_id

    def save(self, snapshot: Snapshot, live: BindingsSnapshot) -> None:
        """Write a snapshot and its bindings, then drop what is no longer kept. Raises SnapshotError."""
        header = snapshot.header
        data = msgspec.msgpack.encode([header, snapshot.state])
        place = f"{header.control_index}-{header.term}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(f"bindings-{place}.avro", encode(live))
            self._write(f"{place}-{hashlib.sha256(data).hexdigest()}.snap", data)
            self._prune()
        except OSError as error:
            raise SnapshotError(
                f"no snapshot could be written to {self._folder} ({error.strerror}): make room, or mend its permissions"
            ) from error

    def newest(self, through: int | None = None) -> Snapshot | None:
        """Return the newest snapshot that verifies; a damaged one is named in the program's log and passed over.

        With `through`, of those up to this control index.
        """
        names = [name for name in self._names() if through is None or name.control_index <= through]
        return next(self._verified(names), None)

    def at(self, control_index: int, term: int) -> Snapshot | None:
        """Return the snapshot of a term just after the round at a control index."""
        place = (control_index, term)
        return next(self._verified([name for name in self._names() if name[:2] == place]), None)

    def find(self, state_sha256: str) -> Snapshot | None:
        """Return the snapshot of this state."""
        return next((one for one in self._verified(self._names()) if one.header.state_sha256 == state_sha256), None)

    def _verified(self, names: list[_Name]) -> Iterator[Snapshot]:
        for name in names:
            try:
                data = name.path.read_bytes()
            except FileNotFoundError:
                continue  # another loop dropped it
            except OSError as error:
                logger.warning("snapshot %s cannot be read (%s) and is passed over", name.path, error.strerror)
                continue
            snapshot = self._decode(name, data)
            if snapshot is None:
                logger.warning("snapshot %s is damaged and passed over; delete it", name.path)
            else:
                yield snapshot

    def _decode(self, name: _Name, data: bytes) -> Snapshot | None:
        if hashlib.sha256(data).hexdigest() != name.sha256:
            return None
        try:
            header, state = msgspec.msgpack.decode(data, type=tuple[Header, bytes])
        except msgspec.DecodeError:
            return None
        fits = (header.log_id, header.control_index, header.term) == (self._log_id, name.control_index, name.term)
        return Snapshot(header=header, state=state) if fits and digest(state) == header.state_sha256 else None

    def _names(self) -> list[_Name]:
        """Return what there is, newest first."""
        try:
            paths = list(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SnapshotError(
                f"the snapshots in {self._folder} cannot be listed ({error.strerror}): mend its permissions"
            ) from error
        found = [
            _Name(int(match[1]), int(match[2]), match[3], path)
            for path in paths
            if (match := _NAME.fullmatch(path.name))
        ]
        return sorted(found, reverse=True)

    def _prune(self) -> None:
        names = self._names()
        boundaries: dict[int, _Name] = {}
        for name in names:
            boundaries.setdefault(name.term, name)
        kept = {*names[:KEPT], *boundaries.values()}
        dropped = [name.path for name in names if name not in kept]
        places = {name[:2] for name in kept}
        newest = max(places, default=(-1, 0))
        for path in self._folder.iterdir():
            match = _BINDINGS_NAME.fullmatch(path.name)
            # Those of a later place belong to a snapshot that another loop is about to write.
            if match and (place := (int(match[1]), int(match[2]))) not in places and place < newest:
                dropped.append(path)
            if path.suffix == ".tmp" and _age_s(path) > TEMPORARY_KEPT_S:
                dropped.append(path)
        for path in dropped:
            path.unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        temporary = self._folder / f"{name}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self._folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def bindings_of(state: State, term: int, decisions: Position) -> BindingsSnapshot:
    """Return what agents start from: the live attempts of a state just after a round."""
    attempts = [job.attempt for _, job in sorted(state.jobs.items()) if job.attempt is not None]
    return BindingsSnapshot(
        meta=Meta(
            event_id=derived(state.log_id, state.control_index, "bindings"), actor="scheduler", at_us=state.ticked_at_us
        ),
        log_id=state.log_id,
        term=term,
        tick_index=state.control_index,
        decisions_index=decisions.index,
        decisions_offset=decisions.offset,
        live=tuple(
            LiveAttempt(bound=encode(attempt.bound), stop=None if stop is None else encode(stop))
            for attempt in attempts
            for stop in (attempt.stop or attempt.preempted,)
        ),
    )
