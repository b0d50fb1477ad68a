"""Sizes and times as people write them, to the integers of the log and back."""

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from gangline.events.amounts import milli_shown

BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
GIB = 1 << 30
MICRO = 1_000_000
MILLI = 1_000

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Return the bytes that "4GiB" or "500 MB" names. Raises ValueError that says what is valid."""
    return _parse(text, BYTES, 1, f"a number with one of {', '.join(BYTES)}, as in 4GiB")


def parse_duration_us(text: str) -> int:
    """Return the microseconds that "90s" or "1.5h" names. Raises ValueError that says what is valid."""
    return _parse(text, SECONDS, MICRO, f"a number with one of {', '.join(SECONDS)}, as in 2h")


def _parse(text: str, units: dict[str, int], scale: int, valid: str) -> int:
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in units:
        raise ValueError(f"write {valid}")
    return whole(Decimal(found[1]) * units[found[2]] * scale)


def parse_milli(value: float | Decimal | str) -> int:
    """Return a count such as 0.5 in thousandths. Raises ValueError for finer ones."""
    try:
        exact = Decimal(str(value)) * MILLI
    except InvalidOperation as error:
        raise ValueError("write a number") from error
    if not exact.is_finite():
        raise ValueError("write a number")
    if exact != exact.to_integral_value():
        raise ValueError("the finest part is a thousandth")
    return int(exact)


def whole(value: Decimal) -> int:
    """Return a number as an integer. Raises ValueError if it is none."""
    if value != value.to_integral_value():
        raise ValueError("it is no whole number of the smallest unit")
    return int(value)


def show_duration(microseconds: int) -> str:
    """Return a span of time in two units at most: 3d 4h, 2m 5s, 0.42s."""
    seconds = max(microseconds, 0) / MICRO
    if seconds < SECONDS["m"]:
        return f"{seconds:.2f}s" if seconds < 10 else f"{seconds:.0f}s"  # noqa: PLR2004 - three digits are enough
    left = int(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, SECONDS[unit])
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def show_bytes(size: int) -> str:
    """Return a size in the largest binary unit that it fills."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= BYTES[unit]:
            return f"{size / BYTES[unit]:.1f}".removesuffix(".0") + unit
    return f"{size}B"


def show_time(at_us: int) -> str:
    """Return a moment in local time, to the millisecond."""
    moment = dt.datetime.fromtimestamp(at_us / MICRO, tz=dt.UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23]


def show_size(job: Mapping[str, Any]) -> str:
    """Return the GPUs of a job's row: of an elastic one what it has, if it runs, and its bounds, as in 16 (8-64)."""
    if job["gpus_min"] is None:
        return milli_shown(job["gpus"] * job["gpu_milli"])
    bounds = f"{job['gpus_min']}-{job['gpus_max']}"
    return bounds if job["gpus_now"] is None else f"{job['gpus_now']} ({bounds})"
