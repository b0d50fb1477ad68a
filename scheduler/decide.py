"""`decide(state, term, views) -> round`: what follows from the state at a tick, rule by rule.

A rule is `(round) -> None`: it reads `round.state` and emits decisions. Quotas, reservation and preemption are further
rules in `RULES`, not other code here.
"""

from collections.abc import Callable
from typing import NamedTuple

from gangline.events.decisions import RoundDecided
from gangline.events.ids import derived
from gangline.events.types import Decision, Meta
from gangline.scheduler.evolve import finish_round
from gangline.scheduler.round import Round
from gangline.scheduler.rules import (
    answers,
    attempts,
    checkpoints,
    deadlines,
    elastic,
    endings,
    held,
    holds,
    interactive,
    node_faults,
    placement,
    quarantine,
    reservation,
    room,
    stragglers,
    warnings,
    worth,
)
from gangline.scheduler.state import State
from gangline.scheduler.timers import any_due, is_due
from gangline.scheduler.views import Views

RULES: tuple[Callable[[Round], None], ...] = (
    quarantine.decide,
    answers.decide,
    checkpoints.decide,
    deadlines.decide,
    warnings.decide,
    node_faults.decide,
    interactive.decide,
    stragglers.decide,
    attempts.decide,
    endings.decide,
    worth.decide,
    holds.decide,
    held.decide,
    placement.decide,
    room.decide,
    reservation.decide,
    placement.decide_again,
    elastic.decide,
)
"""In the order in which a round applies them."""


class Decided(NamedTuple):
    """A round and the state after it. Where nothing is to be written the record is None, and the state as it was."""

    record: RoundDecided | None
    state: State
    decisions: tuple[Decision, ...] = ()
    """What the record encodes, for those who act on it in this process."""


def decide(state: State, term: int, views: Views | None = None) -> Decided:
    """Decide the round of the tick that was folded last.

    `views` are those of the tick before, and make the round faster; without them they are built anew.
    A tick with nothing to decide leaves no record, and so must leave no trace in the state either.
    Ids and times are functions of the log, the tick and the order, so every loop of this code writes the same bytes.
    """
    if brings_nothing(state):
        return Decided(None, state)
    views = Views() if views is None else views
    round_ = Round(state, views)
    for rule in RULES:
        if not round_.full:
            rule(round_)
    if not round_.encoded and not (state.awaiting_round or state.placement_due or state.more):
        return Decided(None, state)
    after = finish_round(round_.state, more=round_.full)
    views.round_over(round_.state, after)
    meta = Meta(
        event_id=derived(state.log_id, state.tick_index, "round"),
        actor="scheduler",
        at_us=state.ticked_at_us,
        cause=f"control:{state.tick_index}",
    )
    record = RoundDecided(
        meta=meta,
        tick_index=state.tick_index,
        tick_event_id=state.tick_event_id,
        term=term,
        more=round_.full,
        decisions=tuple(round_.encoded),
    )
    return Decided(record, after, tuple(round_.decisions))


def round_is_due(state: State) -> bool:
    """Whether the record folded last is a tick that counts."""
    return state.tick_index == state.control_index >= 0


def brings_nothing(state: State) -> bool:
    """Whether no rule has anything to do at a tick: nothing came, nothing was left over, and no time has come.

    Most ticks are such, for while anything waits for time there is one every 5 s at least.
    """
    if state.awaiting_round or state.placement_due or state.more:
        return False
    if state.commands or state.failed_inputs or state.broken or state.finished or state.touched or state.troubled:
        return False
    if deadlines.are_over(state) or any_due(state):
        return False
    policy = state.policy
    if policy is not None and (
        is_due(state, policy.room_interval_us)
        or is_due(state, policy.reservation_interval_us)
        or is_due(state, policy.elastic_interval_us)
    ):
        return False
    if not state.room:
        return True
    held_until = [room.until_us for _, room in sorted(state.room.items())]
    return not any(at_us is not None and at_us <= state.now_us for at_us in held_until)


def next_due_us(state: State) -> int | None:
    """Return the core time at which the next tick has something to do; None if nothing waits for time.

    A time that is past means at once. Inputs since the last round (`state.awaiting_round`) are due at once, too.
    """
    if state.more or state.placement_due or (state.commands and state.policy is not None):
        return state.now_us
    due: list[int] = []
    if state.deadlines_from_us is not None:
        due.append(state.deadlines_from_us)
    if state.timers_from_us is not None:
        due.append(state.timers_from_us)
    if state.policy is not None and state.answers_first < state.answers_next:
        oldest = state.answers[state.answer_order[state.answers_first]]
        due.append(oldest.at_us + state.policy.answers_kept_us)
    # One that is past waits for an upload, which has a timer of its own.
    if state.room:
        held_until = [room.until_us for _, room in sorted(state.room.items())]
        due += [at_us for at_us in held_until if at_us is not None and at_us > state.now_us]
    if state.policy is not None and state.pending:
        # Room is made for those who wait, when core time crosses a multiple of the interval.
        interval_us = state.policy.room_interval_us
        due.append((state.now_us // interval_us + 1) * interval_us)
    return min(due) if due else None
