"""Times, numbers and lists as sentences of the core have them; integers only."""

from collections.abc import Sequence

from gangline.events.types import SECOND_US

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
MAX_NAMED = 3
"""Jobs or nodes that a sentence names."""


def span(time_us: int) -> str:
    """Return a span of time in its two largest units: 3 d 4 h, 2 h 5 min, 7 min, 45 s."""
    seconds = max(time_us, 0) // SECOND_US
    if seconds < MINUTE_S:
        return f"{seconds} s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S} min"
    if seconds < DAY_S:
        return _two(seconds // HOUR_S, "h", seconds % HOUR_S // MINUTE_S, "min")
    return _two(seconds // DAY_S, "d", seconds % DAY_S // HOUR_S, "h")


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    text = ", ".join(names[:MAX_NAMED])
    return text if len(names) <= MAX_NAMED else f"{text} and {len(names) - MAX_NAMED} more"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 node` or `3 nodes`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _two(whole: int, unit: str, rest: int, smaller: str) -> str:
    return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"
