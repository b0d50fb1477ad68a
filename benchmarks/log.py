"""The log and the core that reads it: appending against what it costs without gangline, decoding and folding.

Both sides of a ratio store the same encoded records with the same durability, in turns.
"""

from collections.abc import Iterator

from benchmarks.figures import Figure


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures of the backends and of the fold."""
    from benchmarks import log_fold, log_kafka, log_sqlite

    yield from log_sqlite.figures(quick=quick)
    yield from log_fold.figures(quick=quick)
    yield from log_kafka.figures(quick=quick)
