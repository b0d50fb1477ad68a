"""Snapshots of the state just after a round, and of the bindings that agents start from, as files.

`<folder>/<log_id>/<index>-<term>-<sha256>.snap` holds a header and the canonical bytes; the name's SHA-256 is that of
the file. A file appears whole or not at all: temporary file, fsync, rename, fsync of the folder.
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

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

logger = logging.getLogger(__name__)


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


class SnapshotStore:
    """The snapshots of one log in a folder."""

    def __init__(self, folder: Path, log_id: str) -> None:
        """Use `<folder>/<log_id>`, made when first written to."""
        self._log_id = log_id
        self._folder = folder / log_id

    def save(self, snapshot: Snapshot, live: BindingsSnapshot) -> None:
        """Write a snapshot and its bindings, then drop those that are no longer kept. Raises SnapshotError."""
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

    def newest(self) -> Snapshot | None:
        """Return the newest snapshot that verifies; a damaged one is named in the program's log and passed over."""
        return next(self._verified(), None)

    def find(self, state_sha256: str) -> Snapshot | None:
        """Return the snapshot of this state."""
        return next((found for found in self._verified() if found.header.state_sha256 == state_sha256), None)

    def _verified(self) -> Iterator[Snapshot]:
        for _, _, path in sorted(self._names(), reverse=True):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue  # another loop dropped it
            if hashlib.sha256(data).hexdigest() != path.stem.rpartition("-")[2]:
                logger.warning("snapshot %s is damaged and passed over; delete it", path)
                continue
            header, state = msgspec.msgpack.decode(data, type=tuple[Header, bytes])
            if digest(state) == header.state_sha256 and header.log_id == self._log_id:
                yield Snapshot(header=header, state=state)

    def _names(self) -> list[tuple[int, int, Path]]:
        found = []
        for path in self._folder.glob("*-*-*.snap"):
            index, term, _ = path.stem.split("-")
            found.append((int(index), int(term), path))
        return found

    def _prune(self) -> None:
        names = sorted(self._names(), reverse=True)
        boundaries: dict[int, Path] = {}
        for _, term, path in names:
            boundaries.setdefault(term, path)
        kept = {path for _, _, path in names[:KEPT]} | set(boundaries.values())
        places = {path.stem.rpartition("-")[0] for path in kept}
        for path in self._folder.iterdir():
            old_snapshot = path.suffix == ".snap" and path not in kept
            old_bindings = path.suffix == ".avro" and path.stem.removeprefix("bindings-") not in places
            if old_snapshot or old_bindings:
                path.unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".tmp", delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).rename(self._folder / name)
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
            LiveAttempt(bound=encode(attempt.bound), stop=None if attempt.stop is None else encode(attempt.stop))
            for attempt in attempts
        ),
    )
