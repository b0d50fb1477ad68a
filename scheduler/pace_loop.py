"""When a tick or a takeover is due, by the monotonic clock of this process alone: a wrong wall clock moves nothing."""

from collections.abc import Callable

from gangline.scheduler.decide import next_due_us
from gangline.scheduler.state import State

MIN_TICK_INTERVAL_S = 0.02
"""Facts that come closer together share a round; far below what a launch takes. A command has a round at once, for
somebody waits for its answer: those that come until that round is written share the next one."""

TAKEOVER_S = 3.0
"""A standby takes over when a tick has been due for so long and none came."""

MAX_TICK_INTERVAL_S = 4.5
"""How often a tick comes while anything waits for time. Core time advances by at most 5 s a tick (MAX_STEP_US), so that
what a tick takes on its way is not lost."""

_SECOND_US = 1_000_000


class Pace:
    """What this process has seen of ticks, and when."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._ticked_s = monotonic_s()
        self._due_since_s: float | None = None
        self._took_over_s: float | None = None
        self._state: State | None = None
        self._due_us: int | None = None

    def ticked(self) -> None:
        """Note that a tick that counts was read."""
        self._ticked_s = self._monotonic_s()
        self._due_since_s = None

    def took_over(self) -> None:
        """Note that this process has just appended its takeover; it need not be readable yet."""
        self._took_over_s = self._monotonic_s()
        self._due_since_s = None

    def left_s(self, state: State) -> float | None:
        """Return how long until a tick is due, at most 0 if it is; None if nothing waits for one."""
        since_s = self._monotonic_s() - self._ticked_s
        if state.awaiting_round:
            return 0.0 if state.commands else MIN_TICK_INTERVAL_S - since_s
        due_us = self._next_due_us(state)
        if due_us is None:
            return None
        return min((due_us - state.now_us) / _SECOND_US, MAX_TICK_INTERVAL_S) - since_s

    def takeover_is_due(self, state: State, *, vacant: bool) -> bool:
        """Whether a standby has to take over; at once if there is no ticker (`vacant`)."""
        now_s = self._monotonic_s()
        left_s = self.left_s(state)
        if left_s is None or left_s > 0:
            self._due_since_s = None
            return False
        if self._due_since_s is None:
            self._due_since_s = now_s
        if self._took_over_s is not None and now_s - self._took_over_s < TAKEOVER_S:
            return False
        return vacant or now_s - self._due_since_s >= TAKEOVER_S

    def _next_due_us(self, state: State) -> int | None:
        if state is not self._state:
            self._state, self._due_us = state, next_due_us(state)
        return self._due_us
