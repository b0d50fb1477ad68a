"""Ticks, and what time brings: the answers that are forgotten."""

from itertools import count

from msgspec.structs import replace

from gangline.events.control import ClockTicked, TickerTookOver
from gangline.events.ids import made_at_us
from gangline.scheduler.arrays import task_id
from gangline.scheduler.journal import put_job
from gangline.scheduler.reducers.checkpoints import upload_over
from gangline.scheduler.state import State
from gangline.scheduler.timers import due, follow_interval, look_again
from gangline.scheduler.usage import decayed

MAX_STEP_US = 5_000_000
"""Core time advances by at most this a tick, so that an outage or a wrong clock cannot expire everything at once."""

MAX_FORGOTTEN_PER_TICK = 1_000
"""Bounds the work of a tick; the rest follows at the next ones."""


def ticker_took_over(state: State, event: TickerTookOver) -> State:
    """Let only this ticker's ticks count from here on."""
    return replace(state, ticker=event.ticker)


def clock_ticked(state: State, event: ClockTicked) -> State:
    """Advance core time by the difference between two ticks, clamped to 0..MAX_STEP_US."""
    if event.ticker != state.ticker:
        return state
    at_us = event.meta.at_us
    first = state.tick_index < 0
    now_us = at_us if first else state.now_us + min(max(at_us - state.ticked_at_us, 0), MAX_STEP_US)
    state = replace(
        state,
        ticked_at_us=at_us,
        now_us=now_us,
        before_us=now_us if first else state.now_us,
        tick_index=state.control_index,
        tick_event_id=event.meta.event_id,
    )
    if state.policy is not None:
        state = decayed(state, state.policy)
    for job_id in due(state, "upload"):
        state = upload_over(state, state.jobs[job_id])
    for job_id in due(state, "elastic"):
        state = follow_interval(state, job_id)
    return _forget_answers(look_again(_look_at_deadlines(state)))


def _look_at_deadlines(state: State) -> State:
    """Find out which deadline is the first, once the one that was is over, or its attempt is."""
    if state.deadlines_from_us is None or state.deadlines_from_us > state.now_us:
        return state
    left = [at_us for _, at_us in sorted(state.deadlines.items())]
    return replace(state, deadlines_from_us=min(left) if left else None)


def _forget_answers(state: State) -> State:
    if state.policy is None:
        return state
    for _ in range(MAX_FORGOTTEN_PER_TICK):
        command_id = state.answer_order.get(state.answers_first)
        if command_id is None:
            break
        answered = state.answers[command_id]
        if answered.at_us + state.policy.answers_kept_us > state.now_us:
            break
        state = replace(
            state,
            answers=state.answers.delete(command_id),
            answer_order=state.answer_order.delete(state.answers_first),
            answers_first=state.answers_first + 1,
            # An id from the future must not expire the commands of the present.
            forgotten_at_us=max(state.forgotten_at_us, min(made_at_us(command_id), state.ticked_at_us)),
        )
        state = _forget_job(state, answered.job_id)
    return state


def _forget_job(state: State, job_id: str | None) -> State:
    if job_id is None:
        return state
    array = state.arrays.get(job_id)
    if array is not None:
        state = replace(state, arrays=state.arrays.set(job_id, replace(array, answer_forgotten=True)))
        size = array.size
    else:
        # All jobs of an array that has ended are there.
        size = next(index for index in count() if task_id(job_id, index) not in state.ended)
    ended = state.ended
    for one in (job_id, *(task_id(job_id, index) for index in range(size))):
        ended = ended.delete(one) if one in ended else ended
    if ended is not state.ended:
        return replace(state, ended=ended)
    job = state.jobs.get(job_id)
    if job is None:
        return state
    return put_job(state, replace(job, answer_forgotten=True))
