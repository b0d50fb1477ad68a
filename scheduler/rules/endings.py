"""What ends with others: a job with one that it waited for in vain, an array with the last of its jobs."""

from gangline.events.decisions import JobEnded
from gangline.events.types import Outcome
from gangline.scheduler.arrays import members
from gangline.scheduler.round import Round
from gangline.scheduler.state import JobArray


def decide(round_: Round) -> None:
    """End them, and those that wait for them in turn, until nothing more follows."""
    while round_.state.broken or round_.state.finished:
        for array_id in sorted(round_.state.finished):
            if not round_.emit(_ended(round_.state.arrays[array_id])):
                return
        for waiting, cause in sorted(round_.state.broken.items()):
            for job_id in members(round_.state, waiting):
                if not round_.emit(JobEnded(job_id=job_id, outcome="failed", cause=cause, attempts=0)):
                    return


def _ended(array: JobArray) -> JobEnded:
    outcome: Outcome = "succeeded"
    cause = f"all {array.size} of its jobs succeeded"
    if array.failed:
        outcome = "failed"
        cause = f"{array.failed} of its {array.size} jobs failed or were cancelled"
    if array.cancelled:
        outcome, cause = "cancelled", "cancelled"
    return JobEnded(job_id=array.array_id, outcome=outcome, cause=cause, attempts=0)
