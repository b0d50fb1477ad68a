"""Whether what a job is to wait for can ever succeed: it was admitted before, and has not ended without success."""

from gangline.events.control import SubmitJob
from gangline.events.ids import job_id as job_id_of
from gangline.events.policy import Policy
from gangline.events.types import JobSpec
from gangline.scheduler.rules.refusals import Refusal, refuse, shown
from gangline.scheduler.state import State


def check_after(state: State, policy: Policy, job_id: str, spec: JobSpec) -> Refusal | None:
    """Return why the jobs that this one is to wait for are refused, or None."""
    if len(spec.after) > policy.after_max:
        limit = f"after_max of the policy is {policy.after_max}"
        return refuse("after", f"{len(spec.after)} jobs", limit, "wait for fewer, or for an array of them")
    for other in spec.after:
        if other == job_id or other.startswith(f"{job_id}."):
            return refuse("after", shown(other), "that is this job itself", "name another job")
        if other in state.jobs or other in state.arrays:
            continue
        outcome = state.ended.get(other)
        if outcome == "succeeded":
            continue
        if outcome is not None:
            ended = "was cancelled" if outcome == "cancelled" else "has failed"
            return refuse("after", shown(other), f"that job {ended}", "run it again first, and name the new job")
        return _unknown(state, job_id, other)
    return None


def _unknown(state: State, job_id: str, other: str) -> Refusal:
    """Return why a job that was not admitted cannot be waited for; the commands that still wait may know it."""
    later = {
        job_id_of(state.log_id, command.meta.command_id): command.spec.after
        for _, command in sorted(state.commands.items())
        if isinstance(command, SubmitJob) and command.meta.command_id is not None
    }
    if other.partition(".")[0] not in later:
        limit = "no such job was admitted, or it ended so long ago that its outcome is forgotten"
        return refuse("after", shown(other), limit, "`gangline jobs` lists those there are")
    reached: dict[str, bool] = {}
    waiting = [other.partition(".")[0]]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached[one] = True
            waiting += [further.partition(".")[0] for further in later.get(one, ())]
    if job_id in reached:
        return refuse("after", shown(other), "that job waits for this one in turn", "break the circle")
    return refuse("after", shown(other), "that job is submitted after this one", "submit it first")
