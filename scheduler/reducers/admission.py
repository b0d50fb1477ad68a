"""A job or an array enters: it waits, for its turn and for whatever else is in its way."""

from msgspec.structs import replace

from gangline.events.types import JobSpec
from gangline.scheduler.arrays import task_id
from gangline.scheduler.barriers import barred
from gangline.scheduler.dependencies import wait_for
from gangline.scheduler.journal import put_job
from gangline.scheduler.reducers.storage import follow_pressure
from gangline.scheduler.state import Job, JobArray, State
from gangline.scheduler.worth import Seen, arrived


def admitted(state: State, job_id: str, control_index: int, spec: JobSpec) -> State:
    """Return the state with the job of a command, or with all jobs of its array."""
    if spec.array is None:
        state = _put(state, Job(job_id=job_id, submitted=control_index, spec=spec))
        return wait_for(state, job_id, spec.after)
    # Who is held takes no place in the array's bound.
    parallel = spec.array if spec.array_parallel is None else 0 if spec.held else spec.array_parallel
    array = JobArray(array_id=job_id, size=spec.array, left=spec.array, next_index=min(parallel, spec.array))
    state = replace(state, arrays=state.arrays.set(job_id, array))
    for index in range(spec.array):
        task = Job(
            job_id=task_id(job_id, index), submitted=control_index, spec=spec, array_id=job_id, array_index=index
        )
        state = _put(state, task if index < parallel else barred(task, "array"))
    return wait_for(state, job_id, spec.after)


def _put(state: State, job: Job) -> State:
    job = replace(job, pending_since_us=state.now_us, held=job.spec.held)
    job = follow_pressure(state, job)
    return put_job(
        state,
        job,
        seen=_seen(state.seen, job.spec),
        pending=state.pending.set(job.job_id, True),  # noqa: FBT003 - a map used as a set
        placement_due=True,
    )


def _seen(seen: Seen, spec: JobSpec) -> Seen:
    ranks = max(spec.gpus, 1)
    return arrived(
        seen,
        gpus=spec.gpus,
        gpu_milli=spec.gpu_milli,
        cpu_milli=spec.cpu_milli * ranks,
        memory_bytes=spec.memory_bytes * ranks,
        gpu_types=spec.gpu_types,
    )
