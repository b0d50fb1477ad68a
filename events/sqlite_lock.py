"""A lock on a file, which the kernel drops when its holder dies."""

import fcntl
import os
from pathlib import Path


class FileLock:
    """An flock on a file of its own; the kernel drops it when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def try_exclusive(self) -> bool:
        """Take the lock for us alone, if it is free at this moment."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def share(self) -> None:
        """Take the lock together with others; waits while someone holds it alone."""
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def release(self) -> None:
        """Let go of the lock."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which lets go of the lock."""
        os.close(self._file)
