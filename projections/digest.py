"""One number for all that is projected: equal wherever the same history went in, whatever the database."""

import hashlib
from typing import NamedTuple

import msgspec
from sqlalchemy import select
from sqlalchemy.engine import Engine

from gangline.projections import positions
from gangline.projections.database import snapshot
from gangline.projections.tables import PROJECTED

ROWS_AT_ONCE = 1_000
"""How many rows are held while a table is read."""


class Digest(NamedTuple):
    """The content of the tables at an index of `control`."""

    through: int
    sha256: str


def digest(engine: Engine) -> Digest:
    """Return the SHA-256 over every row of every table in the order of its key, with the last index projected.

    Raises NotFound if nothing has been projected.
    """
    total = hashlib.sha256()
    with snapshot(engine) as connection:
        stand = positions.require(connection)
        for table in PROJECTED:
            total.update(table.name.encode() + b"\n")
            ordered = select(table).order_by(*table.primary_key.columns)
            for rows in connection.execution_options(yield_per=ROWS_AT_ONCE).execute(ordered).partitions():
                for row in rows:
                    total.update(msgspec.json.encode(tuple(row)) + b"\n")
    return Digest(stand.control.index - 1, total.hexdigest())
