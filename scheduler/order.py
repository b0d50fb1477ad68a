"""The order in which pending jobs are tried, and the natural order of ids."""

import re

_DIGITS = re.compile("([0-9]+)")


def natural(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key by which node-2 comes before node-10: runs of digits compare as numbers."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name
