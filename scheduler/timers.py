"""Core times at which something is due: set, cleared and read in order, for one look while nothing is."""

from typing import Literal

from msgspec.structs import replace

from gangline.scheduler.state import State

Kind = Literal["elastic", "quarantine", "upload", "warning"]
"""Of a job: it may grow, its upload is no longer waited for, it is warned. Of a node: its quarantine ends."""


def set_timer(state: State, kind: Kind, subject: str, at_us: int) -> State:
    """Return the state with something due at a core time; one of this kind before it is forgotten."""
    first_us = at_us if state.timers_from_us is None else min(at_us, state.timers_from_us)
    return replace(state, timers=state.timers.set(f"{kind} {subject}", at_us), timers_from_us=first_us)


def clear_timer(state: State, kind: Kind, subject: str) -> State:
    """Return the state without this timer, if there was one."""
    key = f"{kind} {subject}"
    if key not in state.timers:
        return state
    timers = state.timers.delete(key)
    return replace(state, timers=timers, timers_from_us=state.timers_from_us if timers else None)


def follow_interval(state: State, job_id: str) -> State:
    """Return the state in which something is due when the next interval begins at which gangs may grow."""
    if state.policy is None:
        return clear_timer(state, "elastic", job_id)
    interval_us = state.policy.elastic_interval_us
    return set_timer(state, "elastic", job_id, (state.now_us // interval_us + 1) * interval_us)


def due(state: State, kind: Kind) -> list[str]:
    """Return for whom something of this kind is due, sorted."""
    if not any_due(state):
        return []
    beginning = f"{kind} "
    return [
        key.removeprefix(beginning)
        for key, at_us in sorted(state.timers.items())
        if at_us <= state.now_us and key.startswith(beginning)
    ]


def any_due(state: State) -> bool:
    """Whether some timer may be due."""
    return state.timers_from_us is not None and state.timers_from_us <= state.now_us


def look_again(state: State) -> State:
    """Return the state with the time of the first timer found out anew, once the one that was is over."""
    if not any_due(state):
        return state
    left = [at_us for _, at_us in sorted(state.timers.items())]
    return replace(state, timers_from_us=min(left) if left else None)


def is_due(state: State, interval_us: int) -> bool:
    """Whether the last tick crossed a multiple of an interval of core time."""
    return state.now_us // interval_us > state.before_us // interval_us
