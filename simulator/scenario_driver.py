"""Drives the core through a scenario: agents may be unheard for a while, and what ran before the beginning is dictated.

Rounds are applied, never recomputed, and a round that an earlier term wrote may say whatever its code decided. So a
scenario's past is told by such rounds: its answers, commits and requeues are the core's own, only bindings and
preemptions are the scenario's. From the beginning on, in a term of its own, the core decides everything.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gangline.events import ids
from gangline.events.control import ClockTicked
from gangline.events.decisions import (
    GangBound,
    NodesReserved,
    PreemptionOrdered,
    ReservationDropped,
    RoomHeld,
    RoomReleased,
    RoundDecided,
)
from gangline.events.log import Log
from gangline.events.types import Decision, Event, Meta
from gangline.scheduler.decide import decide
from gangline.scheduler.evolve import finish_round
from gangline.scheduler.round import Round
from gangline.scheduler.views import Views
from gangline.simulator.driver import ACTOR, TICKER, Driver

AGENT = "agent:"
"""What the actor of an agent's reports begins with; behind it stands its node."""

DICTATED = (GangBound, PreemptionOrdered, RoomHeld, RoomReleased, NodesReserved, ReservationDropped)
"""What the core does not decide in a scenario's past."""

Dictate = Callable[[Round, tuple[Decision, ...]], None]
"""(the round so far, what the core decided): adds to the round what the scenario says."""


class ScenarioDriver(Driver):
    """A driver whose agents may be silent, and whose past can be dictated."""

    def __init__(self, *, log_id: str, at_us: int, log: Log | None = None) -> None:
        """Begin a log at a time."""
        self._held_back: dict[str, list[Event]] = {}
        super().__init__(log_id=log_id, at_us=at_us, log=log)

    def append(self, event: Event) -> None:
        """Append a record of control and fold it; what a silent node's agent reports waits until it is heard."""
        actor = event.meta.actor
        waiting = self._held_back.get(actor.removeprefix(AGENT)) if actor.startswith(AGENT) else None
        if waiting is None:
            super().append(event)
        else:
            waiting.append(event)

    def silence(self, node_id: str) -> None:
        """Let nothing that a node's agent reports arrive."""
        self._held_back.setdefault(node_id, [])

    def hear(self, node_id: str) -> None:
        """Let what a node's agent reported meanwhile arrive, and all that follows."""
        for event in self._held_back.pop(node_id, []):
            self.append(replace(event, meta=self.meta(event.meta.actor)))

    def dictate(self, at_us: int, dictate: Dictate | None) -> Sequence[Decision]:
        """Append the tick of this time; if something is dictated, fold a round of it and return its decisions."""
        self.at_us = at_us
        self.append(ClockTicked(meta=self.meta(), ticker=TICKER))
        if dictate is None:
            return ()
        state = self.state
        round_ = Round(state, Views())
        dictate(round_, decide(state, self.term).decisions)
        # `more`: whatever the earlier term left undone is due at the beginning.
        self.state = finish_round(round_.state, more=True)
        self.rounds += 1
        meta = Meta(
            event_id=ids.derived(self.log_id, state.tick_index, "round"),
            actor=ACTOR,
            at_us=at_us,
            cause=f"control:{state.tick_index}",
        )
        record = RoundDecided(
            meta=meta,
            tick_index=state.tick_index,
            tick_event_id=state.tick_event_id,
            term=self.term,
            more=True,
            decisions=tuple(round_.encoded),
        )
        self._write(record)
        return round_.decisions
