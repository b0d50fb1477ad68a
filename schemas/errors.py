"""The one error tree of gangline.

An error's text names the value, the limit and the next step. `exit_code` is what the command line exits with.
"""


class GanglineError(Exception):
    """Base of every error that gangline raises on purpose; shown to users without a traceback."""

    exit_code = 1


class UsageError(GanglineError):
    """What was asked cannot be understood: a malformed spec, a missing extra, a wrong flag."""

    exit_code = 2


class NotFound(GanglineError):
    """What was asked for does not exist."""

    exit_code = 3


class Refused(GanglineError):
    """A rule says no; the text says which, and the way out."""

    exit_code = 4


class TimedOut(GanglineError):
    """It was recorded, or may still happen, but not within the time given."""

    exit_code = 5
