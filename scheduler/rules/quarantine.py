"""Inputs that could not be decoded or applied are skipped for ever, by a decision that says why."""

from gangline.events.decisions import InputQuarantined
from gangline.scheduler.errors import Halted
from gangline.scheduler.round import MAX_ROUND_BYTES, Round

MAX_REASON_CHARACTERS = 200
MAX_PER_ROUND = 1_000
"""All of them go into the next round, for a replay asks that round alone what to skip. So their number has a limit,
which keeps them within MAX_ROUND_BYTES; the loop ticks long before that many came."""

if MAX_PER_ROUND * 2 * MAX_REASON_CHARACTERS > MAX_ROUND_BYTES:
    raise AssertionError("quarantined inputs could fill more than a round")


def decide(round_: Round) -> None:
    """Quarantine every failed input."""
    failed = sorted(round_.state.failed_inputs.items())
    if len(failed) > MAX_PER_ROUND:
        raise Halted(
            f"{len(failed):,} records of control since the last round cannot be read, the limit is {MAX_PER_ROUND:,}: "
            "find who writes them, and stop that first"
        )
    for index, reason in failed:
        round_.emit(InputQuarantined(control_index=index, reason=reason[:MAX_REASON_CHARACTERS]))
