"""Times, sizes and thousandths as people write them, in refusals, explanations and tables alike."""

from gangline.events.types import MIB, SECOND_US

_SPANS = (("d", 86_400 * SECOND_US), ("h", 3600 * SECOND_US), ("m", 60 * SECOND_US), ("s", SECOND_US))
_SIZES = (("TiB", MIB << 20), ("GiB", MIB << 10), ("MiB", MIB), ("KiB", MIB >> 10))
_MICRO_DIGITS = 6
_MILLI = 1000


def milli_shown(milli: int) -> str:
    """Return thousandths of GPUs or CPUs as the number that they are: 8, 0.5."""
    whole, rest = divmod(abs(milli), _MILLI)
    sign = "-" if milli < 0 else ""
    return f"{sign}{whole}.{rest:03}".rstrip("0") if rest else f"{sign}{whole}"


def time_shown(time_us: int) -> str:
    """Return a time exactly: 2h, 90s, 0.5s."""
    for unit, factor in _SPANS:
        if time_us and time_us % factor == 0:
            return f"{time_us // factor}{unit}"
    whole, rest = divmod(abs(time_us), SECOND_US)
    part = f".{rest:0{_MICRO_DIGITS}}".rstrip("0") if rest else ""
    return f"{'-' if time_us < 0 else ''}{whole}{part}s"


def size_shown(size_bytes: int) -> str:
    """Return a size in the largest unit that it fills: 2TiB, 23.54GiB, 1000B."""
    for unit, factor in _SIZES:
        if size_bytes >= factor:
            return f"{milli_shown(size_bytes * _MILLI // factor)}{unit}"
    return f"{size_bytes}B"
