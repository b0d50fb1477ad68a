"""Writes rows in the dialect of either database, and knows which record of the log they come from."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from sqlalchemy import and_, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Row
from sqlalchemy.schema import Table
from sqlalchemy.sql import ColumnElement, Select

from gangline.events.types import CheckpointRef
from gangline.projections.tables import checkpoints, timeline

_json = msgspec.json.Encoder(order="deterministic")


class Rows:
    """Rows written through one connection; the caller holds the transaction.

    `index`, `ordinal` and `at_us` say where in the history the fold stands: a record of `control` (ordinal 0), or a
    decision of the round at that tick (ordinal from 1 on).
    """

    def __init__(self, connection: Connection, log_id: str) -> None:
        self.log_id = log_id
        self.index = 0
        self.ordinal = 0
        self.at_us = 0
        self._connection = connection
        self._insert = cast(
            "Callable[[Table], Any]", postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        )

    def add(self, table: Table, **values: object) -> bool:
        """Insert a row unless its key is there; say whether it was not."""
        # Returning a column says it in both dialects; psycopg's rowcount of an insert does not.
        key = next(iter(table.primary_key.columns))
        wanted = self._insert(table).values(_clean(values)).on_conflict_do_nothing().returning(key)
        return self._connection.execute(wanted).first() is not None

    def change(self, table: Table, where: ColumnElement[bool], **values: object) -> bool:
        """Update rows; say whether there were any."""
        return bool(self._connection.execute(update(table).where(where).values(_clean(values))).rowcount)

    def remove(self, table: Table, *where: ColumnElement[bool]) -> None:
        """Delete rows."""
        self._connection.execute(delete(table).where(*where))

    def first(self, query: Select[Any]) -> Row[Any] | None:
        """Return the first row of a query."""
        return self._connection.execute(query).first()

    def all(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return the rows of a query."""
        return self._connection.execute(query).all()

    def add_new(self, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
        """Insert rows whose keys are not there."""
        self._connection.execute(insert(table), [_clean(dict(row)) for row in rows])

    def known(self, table: Table, *where: ColumnElement[bool]) -> bool:
        """Say whether there is such a row."""
        return self.first(select(1).select_from(table).where(*where)) is not None

    def note(
        self, kind: str, job_id: str, attempt: int | None = None, node_id: str | None = None, **detail: object
    ) -> None:
        """Add to the job's timeline."""
        row: dict[str, object] = {
            "job_id": job_id,
            "attempt": attempt,
            "node_id": node_id,
            "kind": kind,
            "at_us": self.at_us,
        }
        row |= {"control_index": self.index, "ordinal": self.ordinal, "detail": json(detail)}
        self._connection.execute(insert(timeline).values(_clean(row)))


def json(value: object) -> str:
    """Return a value as JSON with sorted keys."""
    return _json.encode(value).decode()


def clean(text: str) -> str:
    """Replace NUL, which PostgreSQL's text cannot hold."""
    return text.replace("\0", "\ufffd")


def checkpoint_is(job_id: str, checkpoint: CheckpointRef) -> ColumnElement[bool]:
    """Return the condition for the row of a checkpoint."""
    return and_(
        checkpoints.c.job_id == clean(job_id),
        checkpoints.c.step == checkpoint.step,
        checkpoints.c.manifest_sha256 == clean(checkpoint.manifest_sha256),
    )


def _clean(values: dict[str, object]) -> dict[str, object]:
    return {name: clean(value) if isinstance(value, str) else value for name, value in values.items()}
