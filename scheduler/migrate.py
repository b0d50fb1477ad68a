"""`migrate(bytes) -> bytes`: brings the canonical state of an earlier term to the form of this code."""

from gangline.scheduler.canonical import from_bytes, to_bytes


def migrate(state: bytes) -> bytes:
    """Return the canonical bytes that a new term starts from.

    Raises Halted for a format that this code cannot bring to its own.
    """
    return to_bytes(from_bytes(state))
