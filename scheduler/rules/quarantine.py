"""Inputs that could not be decoded or applied are skipped for ever, by a decision that says why."""

from gangline.events.decisions import InputQuarantined
from gangline.scheduler.errors import Halted
from gangline.scheduler.round import Round

MAX_REASON_CHARACTERS = 200
MAX_REASONS = 1_000
MAX_PER_ROUND = 20_000
"""All of them go into the next round, for a replay asks that round alone what to skip. The first MAX_REASONS keep their
reason (about 220 bytes each), the rest need 20 bytes each, so even MAX_PER_ROUND of them stay within a record."""


def decide(round_: Round) -> None:
    """Quarantine every failed input."""
    if not round_.state.failed_inputs:
        return
    failed = sorted(round_.state.failed_inputs.items())
    if len(failed) > MAX_PER_ROUND:
        raise Halted(
            f"{len(failed):,} records of control since the last round cannot be read, the limit is {MAX_PER_ROUND:,}: "
            "find who writes them, and stop that first"
        )
    round_.emit(
        *(
            InputQuarantined(control_index=index, reason=_short(reason) if count < MAX_REASONS else "")
            for count, (index, reason) in enumerate(failed)
        )
    )


def _short(reason: str) -> str:
    """Return a reason in as many bytes as characters, so that its length bounds its size."""
    return reason.encode("ascii", "backslashreplace").decode()[:MAX_REASON_CHARACTERS]
