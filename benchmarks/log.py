"""The log: appending to SQLite against what it costs without gangline.

Both sides of a ratio store the same encoded records with the same durability, in turns.
"""

from collections.abc import Iterator

from benchmarks.figures import Figure


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures of every backend of the log."""
    from benchmarks import log_sqlite

    yield from log_sqlite.figures(quick=quick)
