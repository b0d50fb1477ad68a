"""What keeps a pending job from being tried at all, whatever is free."""

from typing import Literal

from msgspec.structs import replace

from gangline.scheduler.state import Job

Barrier = Literal["after", "array", "storage", "upload"]
"""Jobs that have to succeed first; an array's bound; storage under pressure; a checkpoint that is not stored yet."""


def barred(job: Job, barrier: Barrier) -> Job:
    """Return the job with this in its way."""
    return job if barrier in job.barriers else replace(job, barriers=tuple(sorted((*job.barriers, barrier))))


def unbarred(job: Job, barrier: Barrier) -> Job:
    """Return the job without this in its way."""
    return replace(job, barriers=tuple(one for one in job.barriers if one != barrier))
