"""What an invariant looks at: the state around a round, what was decided, what the log says, what really runs."""

from collections.abc import Sequence
from typing import NamedTuple

from gangline.events.types import Decision
from gangline.scheduler.state import State
from gangline.scheduler.views import Views
from gangline.schemas.errors import GanglineError
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.machines import Machines


class Violation(GanglineError):
    """Something that has to hold does not; `invariant` names it."""

    def __init__(self, invariant: str, at: int, found: str) -> None:
        super().__init__(f"{invariant}, after record {at} of control: {found}")
        self.invariant = invariant
        self.at = at
        self.found = found


class Scene(NamedTuple):
    """Just after a round."""

    before: State
    """At the tick, before the round."""
    state: State
    """After it."""
    views: Views
    """Those kept from round to round, as of `state`."""
    decisions: Sequence[Decision]
    more: bool
    """Whether the round was full, so that more follows."""
    ledger: Ledger
    machines: Machines | None
    """None where only the log is known."""
