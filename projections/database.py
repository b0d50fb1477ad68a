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
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from gangline.schemas.errors import NotFound, Refused, UsageError

if TYPE_CHECKING:
    from sqlite3 import Connection

BUSY_TIMEOUT_MS = 10_000
"""How long SQLite waits for another writer; a batch of the worker takes a small part of it."""


def open_database(url: str, *, create: bool = False) -> Engine:
    """Return an engine for `sqlite:///file` or `postgresql+psycopg://...`; connections are made when needed.

    Raises UsageError for any other URL, Refused if the file's folder cannot be written, NotFound if the file does not
    exist and is not to be created.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _open_sqlite(Path(parsed.database or ""), create=create)
        if parsed.drivername in {"postgresql", "postgresql+psycopg", "postgres"}:
            return sqlalchemy.create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(f"{url!r} is no URL of a database ({error})") from error
    raise UsageError(f"{parsed.drivername!r} is no database that gangline knows: sqlite or postgresql+psycopg")


@contextmanager
def snapshot(engine: Engine) -> Iterator[SqlConnection]:
    """Give a connection whose queries all see the database as it was at the first one."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            # The driver begins a transaction before the first write only.
            connection.exec_driver_sql("BEGIN")
            yield connection
    else:
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
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
    # Readers come and go, so a connection is opened for each; the worker keeps its one.
    engine = sqlalchemy.create_engine(
        sqlalchemy.URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}
    )
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: "Connection", _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # A power cut may cost the last transactions, never their order: the position goes back with its rows.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
