"""Arrays: many jobs of one spec under one id, each with an index; and what a command that names either means."""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.scheduler.barriers import barred, unbarred
from gangline.scheduler.journal import put_job
from gangline.scheduler.state import Job, JobArray, State


def task_id(array_id: str, index: int) -> str:
    """Return the id of a job of an array."""
    return f"{array_id}.{index}"


def members(state: State, job_id: str) -> list[str]:
    """Return the jobs that an id names and that have not ended: itself, or those of an array in their order."""
    array = state.arrays.get(job_id)
    if array is None:
        return [job_id] if job_id in state.jobs else []
    tasks = (task_id(job_id, index) for index in range(array.size))
    return [task for task in tasks if task in state.jobs]


def task_ended(state: State, job: Job, *, succeeded: bool) -> State:
    """Return the state after a job of an array has ended, with the next one free to start in its place."""
    array = state.arrays[job.array_id]
    array = replace(array, left=array.left - 1, failed=array.failed + (not succeeded))
    state = replace(state, arrays=state.arrays.set(array.array_id, array))
    if "array" not in job.barriers:
        state = _let_next(state, array, 1)
    if array.left:
        return state
    return replace(state, finished=state.finished.set(array.array_id, True))  # noqa: FBT003 - a map used as a set


def _is_bounded(job: Job) -> bool:
    """Whether a job is of an array that lets only some of its jobs run at a time."""
    return bool(job.array_id) and job.spec.array_parallel is not None


def _has_idle_place(job: Job) -> bool:
    """Whether a job has a place among those that may run, and waits for its user to release it."""
    return _is_bounded(job) and job.held and job.attempt is None and "array" not in job.barriers


def places_given_up(state: State, jobs: Sequence[Job]) -> State:
    """Return the state in which held jobs of one array take no place in its bound, and the next ones have theirs."""
    idle = [job for job in jobs if _has_idle_place(job)]
    for job in idle:
        state = put_job(state, barred(job, "array"))
    return _let_next(state, state.arrays[idle[0].array_id], len(idle)) if idle else state


def places_asked_for(state: State, jobs: Sequence[Job]) -> State:
    """Return the state in which released jobs of one array are among those that may run when there is a place."""
    back = [job for job in jobs if _is_bounded(job) and "array" in job.barriers]
    if not back:
        return state
    array = state.arrays[back[0].array_id]
    first = min(job.array_index or 0 for job in back)
    array = replace(array, next_index=min(array.next_index, first))
    state = replace(state, arrays=state.arrays.set(array.array_id, array))
    taken = sum("array" not in state.jobs[task].barriers for task in members(state, array.array_id))
    return _let_next(state, array, (back[0].spec.array_parallel or 0) - taken)


def _let_next(state: State, array: JobArray, places: int) -> State:
    """Let the first jobs start that the array's bound held back, but those that are held."""
    index = array.next_index
    while places > 0 and index < array.size:
        job = state.jobs.get(task_id(array.array_id, index))
        index += 1
        if job is not None and "array" in job.barriers and not job.held:
            state = put_job(state, unbarred(job, "array"), placement_due=True)
            places -= 1
    array = replace(array, next_index=index)
    return replace(state, arrays=state.arrays.set(array.array_id, array))
