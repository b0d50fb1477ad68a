"""What stops a loop, and the one thing that does not."""

from gangline.schemas.errors import GanglineError


class Inapplicable(GanglineError):
    """A reducer refuses an event that says what cannot be; its record is quarantined."""


class Halted(GanglineError):
    """Going on would make a silent divergence; the text says what was found, and what to do."""
