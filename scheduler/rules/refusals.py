"""How a command is refused: the key, its value, the limit and the way out, each short enough for a round."""

from collections.abc import Sequence
from typing import NamedTuple

from gangline.events.decisions import CommandAccepted, CommandRefused
from gangline.events.types import SECOND_US

MAX_SHOWN_CHARACTERS = 120
MAX_LISTED = 50
"""Rounds repeat what is wrong, and must stay within a record."""

_SPANS = (("d", 86_400 * SECOND_US), ("h", 3600 * SECOND_US), ("m", 60 * SECOND_US), ("s", SECOND_US))
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_MICRO_DIGITS = 6


class Refusal(NamedTuple):
    """Why a spec is refused."""

    key: str
    value: str
    limit: str
    message: str


def refuse(key: str, value: object, limit: str, way_out: str) -> Refusal:
    """Return the refusal of a value."""
    text = shown(str(value))
    return Refusal(key, text, limit, f"{key} is {text}, but {limit}: {way_out}")


def time_shown(time_us: int) -> str:
    """Return a time exactly, as users write it: 2h, 90s, 0.5s."""
    for unit, factor in _SPANS:
        if time_us and time_us % factor == 0:
            return f"{time_us // factor}{unit}"
    whole, rest = divmod(abs(time_us), SECOND_US)
    part = f".{rest:0{_MICRO_DIGITS}}".rstrip("0") if rest else ""
    return f"{'-' if time_us < 0 else ''}{whole}{part}s"


def size_shown(size_bytes: int) -> str:
    """Return a size as users write it, in the largest unit that it fills: 2TiB, 23.54GiB, 1000B."""
    for unit, factor in _SIZES:
        if size_bytes >= factor:
            whole, rest = divmod(size_bytes * 1000 // factor, 1000)
            return f"{whole}{f'.{rest:03}'.rstrip('0') if rest else ''}{unit}"
    return f"{size_bytes}B"


def shown(text: str) -> str:
    """Return as much of what a user wrote as an answer repeats."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    text = ", ".join(shown(name) for name in names[:MAX_LISTED])
    return text if len(names) <= MAX_LISTED else f"{text} and {len(names) - MAX_LISTED} more"


class Asked(NamedTuple):
    """The command that is answered."""

    command_id: bytes
    control_index: int

    def accepted(self) -> CommandAccepted:
        """Answer that what was asked holds from here on."""
        return CommandAccepted(command_id=self.command_id, control_index=self.control_index)

    def refused(self, message: str) -> tuple[CommandRefused]:
        """Answer that it cannot be done; the message has the value, the limit and the way out."""
        return (CommandRefused(command_id=self.command_id, control_index=self.control_index, message=message),)
