"""Jobs that wait until others have succeeded, by what each waits for and by who waits for it."""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events.types import Outcome
from gangline.scheduler.arrays import members
from gangline.scheduler.barriers import barred, unbarred
from gangline.scheduler.journal import put_job
from gangline.scheduler.state import State


def wait_for(state: State, job_id: str, others: Sequence[str]) -> State:
    """Return the state with a new job, or all of an array, waiting for those of the others that have not succeeded."""
    left = tuple(other for other in dict.fromkeys(others) if state.ended.get(other) != "succeeded")
    if not left:
        return state
    state = replace(state, waits=state.waits.set(job_id, left))
    for other in left:
        waiting = (*state.waited_for.get(other, ()), job_id)
        state = replace(state, waited_for=state.waited_for.set(other, waiting))
    for member in members(state, job_id):
        state = put_job(state, barred(state.jobs[member], "after"))
    return state


def ended(state: State, job_id: str, outcome: Outcome) -> State:
    """Return the state after a job or an array has ended: those who waited for it may start, or are broken by it."""
    state = _no_longer_waits(state, job_id)
    waiting = state.waited_for.get(job_id)
    if waiting is None:
        return state
    state = replace(state, waited_for=state.waited_for.delete(job_id))
    for one in waiting:
        left = tuple(other for other in state.waits[one] if other != job_id)
        if outcome != "succeeded":
            cause = f"{job_id}, which it waited for, {'was cancelled' if outcome == 'cancelled' else 'failed'}"
            state = replace(state, broken=state.broken.set(one, cause), waits=state.waits.set(one, left))
        elif left:
            state = replace(state, waits=state.waits.set(one, left))
        else:
            state = replace(state, waits=state.waits.delete(one), placement_due=True)
            for member in members(state, one):
                state = put_job(state, unbarred(state.jobs[member], "after"))
    return state


def _no_longer_waits(state: State, job_id: str) -> State:
    if job_id in state.broken:
        state = replace(state, broken=state.broken.delete(job_id))
    left = state.waits.get(job_id)
    if left is None:
        return state
    state = replace(state, waits=state.waits.delete(job_id))
    for other in left:
        waiting = tuple(one for one in state.waited_for.get(other, ()) if one != job_id)
        after = state.waited_for.set(other, waiting) if waiting else state.waited_for.delete(other)
        state = replace(state, waited_for=after)
    return state
