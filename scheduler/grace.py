"""How long a job has between SIGTERM and SIGKILL."""

from gangline.scheduler.round import Round
from gangline.scheduler.state import Job


def grace_us(round_: Round, job: Job) -> int:
    """Return the job's time between SIGTERM and SIGKILL."""
    if job.spec.grace_us is not None:
        return job.spec.grace_us
    return round_.policy.grace_us if round_.policy is not None else 0
