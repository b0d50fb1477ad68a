"""Checkpoints: reported by agents, and what the core made of it."""

from msgspec.structs import replace

from gangline.events.control import CheckpointRejected, CheckpointUploaded, CheckpointUploadStarted
from gangline.events.decisions import CheckpointCommitted, CheckpointRefused
from gangline.scheduler.barriers import unbarred
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.journal import put_job
from gangline.scheduler.state import Job, State, Upload
from gangline.scheduler.timers import clear_timer

MAX_URI_CHARACTERS = 2_000
"""Bindings repeat the URIs of several checkpoints, and must stay within a record."""


def checkpoint_upload_started(state: State, event: CheckpointUploadStarted) -> State:
    """Note that the next attempt may have to wait for it."""
    job = state.jobs.get(event.job_id)
    if job is None or event.attempt != job.attempts or event.step <= job.committed_step:
        return state
    if any(upload.checkpoint.step >= event.step for upload in job.uploads if upload.attempt == event.attempt):
        return state
    if job.uploading is not None and job.uploading.step >= event.step:
        return state
    return put_job(state, replace(job, uploading=Upload(attempt=event.attempt, step=event.step)))


def upload_over(state: State, job: Job) -> State:
    """Return the state in which nothing waits for a job's upload any more, stored or not."""
    if job.uploading is None:
        return state
    job = unbarred(replace(job, uploading=None), "upload")
    return put_job(clear_timer(state, "upload", job.job_id), job, placement_due=True)


def checkpoint_uploaded(state: State, event: CheckpointUploaded) -> State:
    """Keep the report until a round commits or refuses it."""
    if event.checkpoint.step < 0 or event.size_bytes < 0:
        raise Inapplicable(f"a checkpoint of step {event.checkpoint.step} with {event.size_bytes} bytes cannot be")
    if len(event.checkpoint.uri) > MAX_URI_CHARACTERS:
        raise Inapplicable(f"a checkpoint's URI has {len(event.checkpoint.uri)} characters, over {MAX_URI_CHARACTERS}")
    job = state.jobs.get(event.job_id)
    if job is None or any(event.checkpoint == upload.checkpoint for upload in job.uploads):
        return state
    if event.attempt == job.attempts and event.checkpoint.step <= job.committed_step:
        return state  # a repeat: an attempt's steps only grow
    stored = job.uploading is not None and event.attempt == job.attempts and event.checkpoint.step >= job.uploading.step
    job = replace(job, uploads=(*job.uploads, event))
    state = put_job(state, job, touched=state.touched.set(job.job_id, True))  # noqa: FBT003 - a map used as a set
    return upload_over(state, job) if stored else state


def checkpoint_rejected(state: State, event: CheckpointRejected) -> State:
    """Forget a checkpoint that did not verify, so that no later binding names it."""
    job = state.jobs.get(event.job_id)
    if job is None or event.checkpoint not in job.checkpoints:
        return state
    return put_job(state, replace(job, checkpoints=tuple(c for c in job.checkpoints if c != event.checkpoint)))


def checkpoint_committed(state: State, decision: CheckpointCommitted) -> State:
    """Put the checkpoint in front of the job's others."""
    job = state.jobs[decision.job_id]
    kept = state.policy.checkpoints_kept if state.policy is not None else 1
    step = decision.checkpoint.step
    # An attempt that ignores what it could resume from commits the same steps again: that is no progress.
    progressed = job.progressed or all(step > before.step for before in job.checkpoints)
    attempt = job.attempt
    if attempt is not None and attempt.bound.attempt == decision.attempt:
        attempt = replace(attempt, committed_at_us=state.now_us)
    return put_job(
        state,
        replace(
            _answered(job, decision),
            attempt=attempt,
            checkpoints=(decision.checkpoint, *job.checkpoints)[:kept],
            committed_step=step,
            progressed=progressed,
        ),
    )


def checkpoint_refused(state: State, decision: CheckpointRefused) -> State:
    """Drop the report."""
    return put_job(state, _answered(state.jobs[decision.job_id], decision))


def _answered(job: Job, decision: CheckpointCommitted | CheckpointRefused) -> Job:
    return replace(job, uploads=tuple(u for u in job.uploads if u.checkpoint != decision.checkpoint))
