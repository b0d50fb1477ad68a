"""Storage under pressure: jobs that would write much and were never started wait until it is over."""

from msgspec.structs import replace

from gangline.events.control import StoragePressureChanged
from gangline.scheduler.barriers import barred, unbarred
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.journal import put_job
from gangline.scheduler.state import Job, State

RULE = "storage"
MAX_STORES = 1_000
MAX_STORE_CHARACTERS = 500
"""Bounds what the state remembers of stores that somebody reports."""


def storage_pressure_changed(state: State, event: StoragePressureChanged) -> State:
    """Note that a store is nearly full, or no longer."""
    if not 0 < len(event.store) <= MAX_STORE_CHARACTERS:
        raise Inapplicable(f"a store's name has {len(event.store)} characters, over {MAX_STORE_CHARACTERS} or none")
    if event.pressed == (event.store in state.pressed):
        return state
    if event.pressed and len(state.pressed) >= MAX_STORES:
        raise Inapplicable(f"{MAX_STORES} stores are under pressure already")
    pressed = state.pressed
    pressed = pressed.set(event.store, True) if event.pressed else pressed.delete(event.store)  # noqa: FBT003 - a set
    return follow_all(replace(state, pressed=pressed, placement_due=True))


def follow_all(state: State) -> State:
    """Return the state with every pending job held back or not, after the stores or the policy have changed."""
    for job_id in sorted(state.pending):
        before = state.jobs[job_id]
        job = follow_pressure(state, before)
        if job is not before:
            state = put_job(state, job)
    return state


def follow_pressure(state: State, job: Job) -> Job:
    """Return the job held back if it is new, will write much, and the store for it is under pressure."""
    policy = state.policy
    heavy = policy is not None and RULE in policy.rules and job.spec.data_bytes >= policy.data_heavy_bytes
    held_back = heavy and not job.attempts and _is_pressed(state, job.spec.checkpoints)
    if held_back:
        return barred(job, "storage")
    return unbarred(job, "storage") if "storage" in job.barriers else job


def _is_pressed(state: State, place: str | None) -> bool:
    """Whether a store that a job writes to is nearly full; any store, where the job does not say which."""
    if place is None:
        return bool(state.pressed)
    path = f"{place.rstrip('/')}/"
    return any(path.startswith(f"{store.rstrip('/')}/") for store in state.pressed)
