"""Feeds the tables: segments of the history in batches, each batch and its position in one transaction."""

from collections.abc import Sequence

from sqlalchemy.engine import Engine

from gangline.events.history import HistoryReader, Segment
from gangline.events.log import Log, LogReplaced
from gangline.projections import positions
from gangline.projections.database import translated
from gangline.projections.fold import fold
from gangline.projections.rows import Rows
from gangline.projections.tables import metadata

BATCH_SEGMENTS = 64
"""Rounds in one transaction: enough to spread the cost of a commit, few enough for readers to see them soon."""


class Projector:
    """Projects one log into one database, from where the database says it stands. Belongs to one thread."""

    def __init__(self, log: Log, engine: Engine, *, rebuild: bool = False) -> None:
        """Prepare the tables.

        Raises DatabaseUnavailable, LogCut if the log ends before the tables' position, LogReplaced if they come from
        another log, Refused if they are of another version of gangline.
        """
        self._engine = engine
        with translated(engine), engine.begin() as connection:
            if rebuild:
                metadata.drop_all(connection)
            stand = positions.load(connection)
        self._reader = (
            HistoryReader(log) if stand is None else HistoryReader(log, stand.control, stand.decisions, stand.terms)
        )
        if stand is None:
            stand = positions.begin(self._reader.log_id)
            with translated(engine), engine.begin() as connection:
                metadata.create_all(connection)
                positions.start(connection, stand)
        if stand.log_id != self._reader.log_id:
            raise LogReplaced(
                f"the tables were computed from log {stand.log_id}, but this is log {self._reader.log_id}: "
                "give them the right log or another database, or compute them anew with `gangline projector --rebuild`"
            )
        self._stand = stand
        self._pending: list[Segment] = []

    @property
    def stand(self) -> positions.Stand:
        """Where the tables stand."""
        return self._stand

    def step(self, *, timeout_s: float = 0.0) -> int:
        """Project the next batch, waiting up to `timeout_s` for one; return how many rounds it had.

        After DatabaseUnavailable the same batch is tried again at the next call. Raises that, what HistoryReader
        raises, and Refused if another projector feeds the tables.
        """
        if not self._pending:
            self._pending = self._reader.read(BATCH_SEGMENTS, timeout_s=timeout_s)
        done = len(self._pending)
        if done:
            self._write(self._pending)
            self._pending = []
        return done

    def catch_up(self) -> None:
        """Project all that is decided now."""
        batch: list[Segment] = list(self._pending)
        for segment in self._reader.read_to_end():
            batch.append(segment)
            if len(batch) == BATCH_SEGMENTS:
                self._write(batch)
                batch = []
        if batch:
            self._write(batch)
        self._pending = []

    def close(self) -> None:
        """Release the readers of the log. Twice is fine."""
        self._reader.close()

    def _write(self, segments: Sequence[Segment]) -> None:
        after = positions.behind(self._stand.log_id, segments[-1])
        with translated(self._engine), self._engine.begin() as connection:
            positions.advance(connection, self._stand, after)
            rows = Rows(connection, self._stand.log_id)
            for segment in segments:
                fold(rows, segment)
        self._stand = after
