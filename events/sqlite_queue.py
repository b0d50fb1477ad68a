"""The queue of writers to one partition, across processes: who holds the lock commits what all have pending.

Every writer that has to wait owns a slot: an area of the file `slots`, and a named pipe `wake-NN` that it sleeps on and
whose flock says that the owner lives. A frame carries a CRC, and the slot's state is written last, so a frame is whole
or absent. The pipe only shortens the wait: a holder that dies wakes nobody, so waiters look again every LOOK_AGAIN_S.
"""

import fcntl
import os
import select
import struct
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gangline.events.log import Entry

SLOTS = 64
"""Writers that can share commits; a further one waits for the lock itself."""

SLOT_BYTES = 16 * 1024
"""Room for one pending append (agents' and the CLI's are a few kB); a larger one is committed by its own writer."""

LOOK_AGAIN_S = 0.05
"""How long a waiter sleeps before it looks whether the holder of the lock has died."""

GATHER_SHARE = 0.25
"""Which part of the last commit's time a holder waits for those who shared the last two; see `gather`."""

GATHER_LEAST_S, GATHER_MOST_S = 0.000_25, 0.002
"""Below the first, waiting costs more than it saves; the second keeps one slow sync from slowing the next commits."""

FREE, PENDING, WAITING, DONE, FAILED = range(5)

_HISTORY_OFFSET = 8
_HISTORY = struct.Struct("<QQI")  # the slots that shared the last commit, and the one before; microseconds it took
_STATES_OFFSET = 64
_FIRST_SLOT_OFFSET = 4096
_FRAME_OFFSET = 512
_RESULT = struct.Struct("<QQH")  # ticket, index of the first record or kind of failure, length of a text
_FRAME = struct.Struct("<QII")  # ticket, length, CRC of ticket and payload
_COUNT = struct.Struct("<I")
_LENGTHS = struct.Struct("<II")
MAX_FRAME_BYTES = SLOT_BYTES - _FRAME_OFFSET - _FRAME.size
_MAX_TEXT_BYTES = _FRAME_OFFSET - _RESULT.size


class Pending(NamedTuple):
    """What a waiting writer wants appended."""

    slot: int
    ticket: int
    entries: list[Entry]


class Outcome(NamedTuple):
    """What became of a pending append: its first index, or the kind of the error and its text."""

    ok: bool
    number: int
    text: str = ""


class Slots:
    """The slots of one partition, seen by one writer. All but `wait` are quick and never block."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "slots"
        self._folder = folder
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = _FIRST_SLOT_OFFSET + SLOTS * SLOT_BYTES
        if os.fstat(self._file).st_size < size:
            os.posix_fallocate(self._file, 0, size)
        self._own = -1
        self._pipe = -1
        self._poll = select.poll()
        self._wakers: dict[int, int] = {}

    # The side of a waiting writer.

    def take(self) -> bool:
        """Make sure that we own a slot; False if all are taken."""
        if self._own >= 0:
            return True
        for slot in range(SLOTS):
            with suppress(FileExistsError):
                os.mkfifo(self._pipe_path(slot), 0o644)
            pipe = self._claim(slot)
            if pipe >= 0:
                self._own, self._pipe = slot, pipe
                self._poll.register(pipe, select.POLLIN)
                self._set_state(slot, FREE)
                return True
        return False

    def submit(self, ticket: int, entries: Sequence[Entry]) -> bool:
        """Leave entries in our slot for whoever commits next; False if they do not fit."""
        payload = pack(entries)
        if len(payload) > MAX_FRAME_BYTES:
            self._set_state(self._own, WAITING)
            return False
        crc = zlib.crc32(payload, zlib.crc32(ticket.to_bytes(8, "little")))
        start = _slot_offset(self._own) + _FRAME_OFFSET
        os.pwrite(self._file, _FRAME.pack(ticket, len(payload), crc) + payload, start)
        self._set_state(self._own, PENDING)
        return True

    def outcome(self, ticket: int) -> Outcome | None:
        """Return what became of our pending append, None while nothing has."""
        state = os.pread(self._file, 1, _STATES_OFFSET + self._own)[0]
        if state not in (DONE, FAILED):
            return None
        data = os.pread(self._file, _FRAME_OFFSET, _slot_offset(self._own))
        done_ticket, number, length = _RESULT.unpack_from(data)
        if done_ticket != ticket:
            return None
        text = data[_RESULT.size : _RESULT.size + length].decode(errors="replace")
        return Outcome(state == DONE, number, text)

    def withdraw(self) -> None:
        """Take back what is in our slot. A holder that has read it already may still commit it."""
        if self._own >= 0:
            self._set_state(self._own, FREE)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a holder wakes us, at most LOOK_AGAIN_S."""
        if self._poll.poll(min(timeout_s, LOOK_AGAIN_S) * 1000):
            with suppress(BlockingIOError):
                os.read(self._pipe, 64)

    def anyone_waits(self) -> bool:
        """Whether a writer of a large append waits for the lock, and should not be overtaken for ever."""
        return bytes([WAITING]) in self._states()

    # The side of the holder of the lock.

    def interrupted(self) -> bool:
        """Whether the holder before us died, or failed, between `begin` and `settled`."""
        return os.pread(self._file, 1, 0) == b"\x01"

    def begin(self) -> None:
        """Note that a commit is under way."""
        os.pwrite(self._file, b"\x01", 0)

    def settled(self) -> None:
        """Note that the commit and its announcements are complete."""
        os.pwrite(self._file, b"\x00", 0)

    def gather(self) -> None:
        """Give those who shared the last two commits a moment to come back, where a sync takes much longer than that.

        Without it the writers of a slow disk fall into two halves that wait for each other's sync (PostgreSQL's
        commit_delay answers the same).
        """
        last, before, commit_us = _HISTORY.unpack(os.pread(self._file, _HISTORY.size, _HISTORY_OFFSET))
        expected = (last | before) & ~self._own_bit()
        wait_s = min(commit_us * 1e-6 * GATHER_SHARE, GATHER_MOST_S)
        if wait_s < GATHER_LEAST_S:
            return
        until = time.monotonic() + wait_s
        while expected & ~self._wanting() and time.monotonic() < until:
            time.sleep(GATHER_LEAST_S / 4)

    def note_commit(self, pending: Sequence[Pending], took_s: float) -> None:
        """Note who shared a commit, and how long it took, for the next holder's `gather`."""
        shared = self._own_bit()
        for each in pending:
            shared |= 1 << each.slot
        last, _, _ = _HISTORY.unpack(os.pread(self._file, _HISTORY.size, _HISTORY_OFFSET))
        took_us = min(int(took_s * 1e6), 0xFFFFFFFF)
        os.pwrite(self._file, _HISTORY.pack(shared, last, took_us), _HISTORY_OFFSET)

    def pending(self) -> list[Pending]:
        """Return what the waiting writers want appended, as far as it is whole."""
        found = []
        for slot, state in enumerate(self._states()):
            if state == PENDING:
                data = os.pread(self._file, SLOT_BYTES - _FRAME_OFFSET, _slot_offset(slot) + _FRAME_OFFSET)
                ticket, length, crc = _FRAME.unpack_from(data)
                payload = data[_FRAME.size : _FRAME.size + length]
                if crc == zlib.crc32(payload, zlib.crc32(data[:8])) and len(payload) == length:
                    found.append(Pending(slot, ticket, unpack(payload)))
        return found

    def answer(self, pending: Pending, outcome: Outcome) -> None:
        """Tell a waiting writer what became of its append."""
        text = outcome.text.encode()[:_MAX_TEXT_BYTES]
        data = _RESULT.pack(pending.ticket, outcome.number, len(text)) + text
        os.pwrite(self._file, data, _slot_offset(pending.slot))
        self._set_state(pending.slot, DONE if outcome.ok else FAILED)
        self._wake(pending.slot)

    def wake_next(self) -> None:
        """After letting go of the lock: wake one that wants it, large appends first."""
        states = self._states()
        for wanted in (WAITING, PENDING):
            for slot, state in enumerate(states):
                if state == wanted and self._wake(slot):
                    return
                if state == WAITING and wanted == WAITING:
                    self._free_if_dead(slot)

    def clear(self) -> None:
        """Forget what writers left that are all gone. Only for the first one to open the log."""
        os.pwrite(self._file, bytes(_STATES_OFFSET + SLOTS), 0)

    def close(self) -> None:
        """Give the slot back and close the files."""
        self.withdraw()
        for descriptor in (self._file, self._pipe, *self._wakers.values()):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._pipe = -1
        self._wakers.clear()
        self._own = -1

    def _own_bit(self) -> int:
        return 1 << self._own if self._own >= 0 else 0

    def _wanting(self) -> int:
        """Return a bit for each slot whose owner wants a commit."""
        return sum(1 << slot for slot, state in enumerate(self._states()) if state in (PENDING, WAITING))

    def _states(self) -> bytes:
        return os.pread(self._file, SLOTS, _STATES_OFFSET)

    def _set_state(self, slot: int, state: int) -> None:
        os.pwrite(self._file, bytes([state]), _STATES_OFFSET + slot)

    def _pipe_path(self, slot: int) -> Path:
        return self._folder / f"wake-{slot:02d}"

    def _claim(self, slot: int) -> int:
        """Return the slot's pipe, locked, if no living writer owns it; else -1."""
        pipe = os.open(self._pipe_path(slot), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(pipe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(pipe)
            return -1
        return pipe

    def _free_if_dead(self, slot: int) -> None:
        """Free a slot whose owner died, so that nobody makes way for it."""
        pipe = self._claim(slot)
        if pipe >= 0:
            self._set_state(slot, FREE)
            os.close(pipe)

    def _wake(self, slot: int) -> bool:
        """Wake the owner of a slot; False if it is ourselves, or nobody."""
        if slot == self._own:
            return False
        try:
            if slot not in self._wakers:
                self._wakers[slot] = os.open(self._pipe_path(slot), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.write(self._wakers[slot], b"!")
        except BlockingIOError:
            return True  # it has more wakes waiting than it can hold
        except OSError:
            return False  # its owner has gone
        return True


def pack(entries: Sequence[Entry]) -> bytes:
    """Return entries as the payload of a frame."""
    parts = [_COUNT.pack(len(entries))]
    parts.extend(_LENGTHS.pack(len(key), len(value)) for key, value in entries)
    for key, value in entries:
        parts.append(key)
        parts.append(value)
    return b"".join(parts)


def unpack(payload: bytes) -> list[Entry]:
    """Return the entries of a payload made by `pack`."""
    (count,) = _COUNT.unpack_from(payload)
    start = _COUNT.size + count * _LENGTHS.size
    entries = []
    for number in range(count):
        key_length, value_length = _LENGTHS.unpack_from(payload, _COUNT.size + number * _LENGTHS.size)
        middle, end = start + key_length, start + key_length + value_length
        entries.append(Entry(payload[start:middle], payload[middle:end]))
        start = end
    return entries


def _slot_offset(slot: int) -> int:
    return _FIRST_SLOT_OFFSET + slot * SLOT_BYTES
