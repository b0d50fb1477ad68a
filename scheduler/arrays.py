"""Arrays: many jobs of one spec under one id, each with an index; and what a command that names either means."""

from msgspec.structs import replace

from gangline.scheduler.barriers import unbarred
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
    if "array" not in job.barriers:
        state, array = _next(state, array)
    state = replace(state, arrays=state.arrays.set(array.array_id, array))
    if array.left:
        return state
    return replace(state, finished=state.finished.set(array.array_id, True))  # noqa: FBT003 - a map used as a set


def _next(state: State, array: JobArray) -> tuple[State, JobArray]:
    """Let the first job start that the array's bound held back."""
    while array.next_index < array.size:
        job = state.jobs.get(task_id(array.array_id, array.next_index))
        array = replace(array, next_index=array.next_index + 1)
        if job is not None:
            return put_job(state, unbarred(job, "array"), placement_due=True), array
    return state, array
