"""Opens the SQL database of the projections: SQLite for one machine, PostgreSQL for a deployment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import Connection as SqlConnection
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    ProgrammingError,
)
from sqlalchemy.pool import NullPool

from gangline.schemas.errors import GanglineError, NotFound, Refused, UsageError

if TYPE_CHECKING:
    from sqlite3 import Connection

BUSY_TIMEOUT_MS = 10_000
"""How long SQLite waits for another writer; a batch of the worker takes a small part of it."""


class DatabaseUnavailable(GanglineError):
    """The database does not answer, or cannot do what was asked now; nothing of the transaction is there."""


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn what the database's driver raises for its surroundings into DatabaseUnavailable; bugs stay what they are."""
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        if isinstance(error, DataError | IntegrityError | ProgrammingError):
            raise
        said = " ".join(str(error.orig).split())
        raise DatabaseUnavailable(
            f"the tables at {engine.url.render_as_string(hide_password=True)} cannot be used now ({said}): see whether "
            "the server runs and the address is right, or name another with --sql"
        ) from error


def open_database(url: str, *, create: bool = False) -> Engine:
    """Return an engine for `sqlite:///file` or `postgresql+psycopg://...`; connections are made when needed.

    Who creates it keeps a connection, as the worker does; who only reads leaves none behind.

    Raises UsageError for any other URL, Refused if the file's folder cannot be written, NotFound if the file does not
    exist and is not to be created.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _open_sqlite(Path(parsed.database or ""), create=create)
        if parsed.drivername in {"postgresql", "postgresql+psycopg", "postgres"}:
            return sqlalchemy.create_engine(
                parsed.set(drivername="postgresql+psycopg"),
                pool_pre_ping=create,
                poolclass=None if create else NullPool,
            )
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(f"{url!r} is no URL of a database ({error})") from error
    raise UsageError(f"{parsed.drivername!r} is no database that gangline knows: sqlite or postgresql+psycopg")


@contextmanager
def snapshot(engine: Engine) -> Iterator[SqlConnection]:
    """Give a connection whose queries all see the database as it was at the first one. Raises DatabaseUnavailable."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with translated(engine), engine.connect().execution_options(**level) as connection:
        if engine.dialect.name == "sqlite":
            # The driver begins a transaction before the first write only.
            connection.exec_driver_sql("BEGIN")
        yield connection


def _open_sqlite(path: Path, *, create: bool) -> Engine:
    if not path.name:
        raise UsageError("the SQLite database needs a file: sqlite:////absolute/path")
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        raise NotFound(f"{path} does not exist: nothing has been projected yet; `gangline up` starts the projector")
    # Readers need to write, too: SQLite keeps its locks in the file beside the database.
    for place in (path.parent, path):
        if place.exists() and not os.access(place, os.W_OK, effective_ids=True):
            raise Refused(f"{place} cannot be written: give this user the right to, or name another with --sql")
    engine = sqlalchemy.create_engine(
        sqlalchemy.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000},
        poolclass=None if create else NullPool,
    )
    if create:
        # Not by readers: two that change the mode of a new file at once lock each other out, whatever the timeout.
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: "Connection", _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # A power cut may cost the last transactions, never their order: the position goes back with its rows.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
