"""Ids: made once by whoever acts (UUIDv7), or derived from what is on the log."""

import hashlib
import os
import time

UUID_BYTES = 16
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = tuple(one + other for one in _BASE32 for other in _BASE32)
"""What ten bits are in base32 (RFC 4648), in lower case."""


def uuid7() -> bytes:
    """Return a new UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds since 1970, the rest random."""
    return uuid7_of(time.time_ns() // 1_000_000, os.urandom(10))


def uuid7_of(milliseconds: int, random: bytes) -> bytes:
    """Return the UUIDv7 of a time, milliseconds since 1970, and 10 bytes, of which 74 bits are kept."""
    made = bytearray(milliseconds.to_bytes(6, "big") + random)
    made[6] = 0x70 | made[6] & 0x0F
    made[8] = 0x80 | made[8] & 0x3F
    return bytes(made)


def made_at_us(uuid: bytes) -> int:
    """Return when a UUIDv7 was made, microseconds since 1970 (in steps of a millisecond)."""
    return int.from_bytes(uuid[:6], "big") * 1000


def job_id(log_id: str, command_id: bytes) -> str:
    """Return the id of the job that a command submits: `job-` and 12 base32 characters."""
    digest = hashlib.sha256(log_id.encode() + b"/" + command_id).digest()
    bits = int.from_bytes(digest[:8], "big") >> 4
    return "job-" + "".join([_PAIRS[bits >> shift & 0x3FF] for shift in (50, 40, 30, 20, 10, 0)])


def derived(log_id: str, tick_index: int, what: str) -> bytes:
    """Return the id of something in the round of a tick: the same in every loop that decides it."""
    return hashlib.sha256(f"{log_id}/{tick_index}/{what}".encode()).digest()[:UUID_BYTES]
