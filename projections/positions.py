"""Where a projection stands: read and written in the transactions of its rows."""

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import insert, inspect, select, update
from sqlalchemy.engine import Connection

from gangline.events.log import START, Position
from gangline.events.terms import NO_TERM, Terms
from gangline.projections.tables import TABLES_VERSION, positions
from gangline.schemas.errors import NotFound, Refused

if TYPE_CHECKING:
    # Readers of the tables need not load the codec.
    from gangline.events.history import Segment

NAME = "control"
"""The row of the projection that merges `control` and `decisions`."""


class Stand(NamedTuple):
    """What is projected of which log."""

    log_id: str
    control: Position
    decisions: Position
    terms: Terms
    tick_at_us: int | None = None
    """The clock of the last round's tick, None before the first."""


def begin(log_id: str) -> Stand:
    """Return where the projection of a log begins."""
    return Stand(log_id, START, START, NO_TERM)


def behind(log_id: str, segment: "Segment") -> Stand:
    """Return where it stands behind a segment."""
    return Stand(log_id, segment.control, segment.after, segment.terms, segment.inputs[-1].event.meta.at_us)


def load(connection: Connection) -> Stand | None:
    """Return where the projection stands, None if it has not begun. Raises Refused for tables of another version."""
    if not inspect(connection).has_table(positions.name):
        return None
    row = connection.execute(select(positions).where(positions.c.name == NAME)).mappings().first()
    if row is None:
        return None
    if row["tables_version"] != TABLES_VERSION:
        raise Refused(
            f"the tables are of version {row['tables_version']}, this version of gangline has {TABLES_VERSION}: "
            "`gangline projector --rebuild` computes them anew from the log"
        )
    return Stand(
        log_id=row["log_id"],
        control=Position(row["control_index"], row["control_offset"]),
        decisions=Position(row["decisions_index"], row["decisions_offset"]),
        terms=Terms(term=row["term"], decided=row["decided"]),
        tick_at_us=row["tick_at_us"],
    )


def require(connection: Connection) -> Stand:
    """Return where the projection stands. Raises NotFound if it has not begun."""
    stand = load(connection)
    if stand is None:
        raise NotFound("nothing has been projected yet: `gangline up` starts the projector, or `gangline projector`")
    return stand


def start(connection: Connection, stand: Stand) -> None:
    """Write the first position."""
    connection.execute(insert(positions).values(name=NAME, **_columns(stand)))


def advance(connection: Connection, before: Stand, after: Stand) -> None:
    """Move on; as the first statement of a transaction it keeps other projectors out.

    Raises Refused if someone else has moved it.
    """
    here = (positions.c.name == NAME, positions.c.log_id == before.log_id)
    unmoved = (positions.c.decisions_index == before.decisions.index, positions.c.control_index == before.control.index)
    done = connection.execute(update(positions).where(*here, *unmoved).values(**_columns(after)))
    if done.rowcount != 1:
        raise Refused("another projector feeds these tables: stop one of them, or give it another --sql")


def _columns(stand: Stand) -> dict[str, str | int | None]:
    return {
        "log_id": stand.log_id,
        "tables_version": TABLES_VERSION,
        "control_index": stand.control.index,
        "control_offset": stand.control.offset,
        "decisions_index": stand.decisions.index,
        "decisions_offset": stand.decisions.offset,
        "term": stand.terms.term,
        "decided": stand.terms.decided,
        "tick_at_us": stand.tick_at_us,
    }
