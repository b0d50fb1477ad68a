"""Says in gangline's errors what SQLite and the file system refused."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from gangline.events.log import LogDamaged, LogError, LogFull, LogUnavailable

FULL_BELOW_BYTES = 64 * 1024
"""With less free space than this, an I/O error of SQLite (which writes -shm and -wal, too) means a full disk."""

DAMAGE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.FormatError,
    apsw.SQLError,  # a table or column that is not there
    apsw.MismatchError,
    apsw.ConstraintError,
    apsw.TooBigError,  # a length over LIMIT_BYTES
    apsw.RangeError,
)
"""What SQLite raises for bytes that this code cannot have written."""

DAMAGE_ADVICE = "Stop its writers, keep the file for inspection, and restore the folder from a backup."
FULL_ADVICE = "Nothing of this append was acknowledged; free some space there and append again."


def damaged(path: Path, what: str) -> LogDamaged:
    """Return the error that names a damaged file and says what to do."""
    return LogDamaged(f"{path} is damaged: {what}. {DAMAGE_ADVICE}")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what SQLite and the operating system say about `path` as one of gangline's errors."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translate(path, error) from error
    except UnicodeDecodeError as error:
        raise damaged(path, f"a column that holds bytes claims to hold text ({error.reason})") from error


def translate(path: Path, error: apsw.Error | OSError) -> LogError:
    """Return the gangline error for what SQLite or the operating system said about `path`."""
    if isinstance(error, OSError):
        return _from_os(path, error)
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and _is_full(path)):
        return LogFull(f"the disk that holds {path} is full. {FULL_ADVICE}")
    if isinstance(error, DAMAGE):
        return damaged(path, f"SQLite says '{error}'")
    if extended in (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA):
        return damaged(path, f"SQLite says '{error}' (extended code {extended})")
    if extended == apsw.SQLITE_READONLY_DBMOVED:
        return damaged(path, "it was moved, removed or replaced while open")
    if isinstance(error, apsw.CantOpenError) and not path.exists():
        return damaged(path, "it is missing")
    if isinstance(error, (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)):
        return not_permitted(path, str(error))
    return LogUnavailable(f"{path} cannot be used now: SQLite says '{error}' (extended code {extended})")


def not_permitted(path: Path, reason: str) -> LogError:
    """Return the error for a file or folder that this user may not use."""
    return LogError(
        f"{path} cannot be opened and written by user {os.geteuid()}: {reason}. "
        "Give that user write permission on it and its folder, or choose another folder with $GANGLINE_HOME."
    )


def _from_os(path: Path, error: OSError) -> LogError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LogFull(f"the disk that holds {path} is full. {FULL_ADVICE}")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return not_permitted(path, error.strerror or str(error))
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return LogError(f"{path} cannot be a log's folder: it, or what stands above it, is a file; name another")
    if error.errno == errno.ENOENT:
        return damaged(path, f"{error.filename} is missing")
    return LogUnavailable(f"{path} cannot be used now: {error}")


def _is_full(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < FULL_BELOW_BYTES or (space.f_files > 0 and space.f_favail == 0)
