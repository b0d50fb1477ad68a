"""Which records of `decisions` count: the one filter that every consumer applies.

Terms fence code. A TermOpened counts if it follows the open term directly and no valid round before it has a tick
above its `control_index`. A RoundDecided counts if it belongs to the open term and its tick is later than all that is
decided. So of two equal rounds the first one counts, and what an old loop writes after a new term has opened is void.
"""

from gangline.events.decisions import RoundDecided, TermOpened
from gangline.events.types import Value


class Terms(Value, frozen=True, kw_only=True):
    """The open term (0 for none), and the highest control index that is decided (-1 for none)."""

    term: int = 0
    decided: int = -1


NO_TERM = Terms()


def admit(terms: Terms, record: TermOpened | RoundDecided) -> Terms | None:
    """Return the terms after a record of `decisions`, or None if the record is void."""
    if isinstance(record, TermOpened):
        follows = record.term == terms.term + 1 and record.previous == terms.term
        return (
            Terms(term=record.term, decided=record.control_index)
            if follows and record.control_index >= terms.decided
            else None
        )
    if terms.term and record.term == terms.term and record.tick_index > terms.decided:
        return Terms(term=terms.term, decided=record.tick_index)
    return None
