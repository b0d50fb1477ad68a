"""Folds a segment of the history into rows: inputs in order, then the round's decisions."""

from gangline.events.decisions import Answer
from gangline.events.history import Segment
from gangline.projections import decided, inputs
from gangline.projections.rows import Rows


def fold(rows: Rows, segment: Segment) -> None:
    """Write the rows of one segment."""
    for record, event in segment.inputs:
        rows.index, rows.ordinal, rows.at_us = record.index, 0, event.meta.at_us
        if write := inputs.WRITES.get(type(event)):
            write(rows, event)
    rows.index, rows.at_us = segment.round.tick_index, segment.round.meta.at_us
    for rows.ordinal, decision in enumerate(segment.decisions, start=1):
        if isinstance(decision, Answer):
            decided.answered(rows, decision)
        if further := decided.WRITES.get(type(decision)):
            further(rows, decision)
