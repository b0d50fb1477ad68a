"""A checkpoint exists once it is committed: an attempt may commit until the next one is bound, and never after."""

from gangline.events.decisions import CheckpointCommitted, CheckpointRefused
from gangline.scheduler.round import Round


def decide(round_: Round) -> None:
    """Commit or refuse every reported checkpoint."""
    for job_id in sorted(round_.state.touched):
        job = round_.state.jobs.get(job_id)
        for upload in job.uploads if job is not None else ():
            reason = None
            if job is not None and upload.attempt != job.attempts:
                reason = f"attempt {upload.attempt} is not the latest, which is {job.attempts}"
            if reason is None:
                done = round_.emit(
                    CheckpointCommitted(job_id=job_id, attempt=upload.attempt, checkpoint=upload.checkpoint)
                )
            else:
                done = round_.emit(
                    CheckpointRefused(
                        job_id=job_id, attempt=upload.attempt, checkpoint=upload.checkpoint, reason=reason
                    )
                )
            if not done:
                return
