"""How a command is refused: the key, its value, the limit and the way out, each short enough for a round."""

from collections.abc import Sequence
from typing import NamedTuple

from gangline.events.decisions import CommandAccepted, CommandRefused

MAX_SHOWN_CHARACTERS = 120
MAX_LISTED = 50
"""Rounds repeat what is wrong, and must stay within a record."""


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
