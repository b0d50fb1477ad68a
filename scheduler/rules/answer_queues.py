"""Answers to commands about the policy and its queues: activate, set a queue, remove one."""

from gangline.events import control
from gangline.events.decisions import PolicyActivated, PolicyRefused
from gangline.events.policy import Policy, with_queue, without_queue
from gangline.events.types import Decision
from gangline.scheduler.round import Round
from gangline.scheduler.rules.guarantees import unreachable
from gangline.scheduler.rules.policy_checks import check_policy
from gangline.scheduler.rules.refusals import Asked, listed, shown
from gangline.scheduler.state import State

MAX_JOBS_LISTED = 3


def activate(round_: Round, asked: Asked, command: control.ActivatePolicy) -> tuple[Decision, ...]:
    """Activate a policy that holds together, and leaves no job without its queue."""
    state, after = round_.state, command.policy
    fault = check_policy(after) or _removed_with_jobs(state, after)
    if fault is None and state.policy is not None:
        fault = unreachable(state, round_.views.uses, state.policy, after)
    if fault is None:
        return (PolicyActivated(command_id=asked.command_id, control_index=asked.control_index),)
    return (PolicyRefused(command_id=asked.command_id, control_index=asked.control_index, message=fault),)


def set_queue(round_: Round, policy: Policy, asked: Asked, command: control.SetQueue) -> tuple[Decision, ...]:
    """Add a queue, or change one; the whole tree has to hold together with it."""
    # Another command of this round may have changed the policy.
    latest = round_.state.policy or policy
    after = with_queue(latest, command.queue)
    fault = check_policy(after) or unreachable(round_.state, round_.views.uses, latest, after)
    return (asked.accepted(),) if fault is None else asked.refused(fault)


def remove_queue(round_: Round, policy: Policy, asked: Asked, command: control.RemoveQueue) -> tuple[Decision, ...]:
    """Remove a queue that nothing is in."""
    latest = round_.state.policy or policy
    paths = sorted(queue.path for queue in latest.queues)
    if command.path not in paths:
        return asked.refused(f"there is no queue '{shown(command.path)}': the queues are {listed(paths)}")
    below = [path for path in paths if path.startswith(f"{command.path}/")]
    if below:
        first = "it" if len(below) == 1 else "those"
        return asked.refused(
            f"queue '{command.path}' has {len(below)} below it ({listed(below)}): remove {first} first"
        )
    after = without_queue(latest, command.path)
    fault = _removed_with_jobs(round_.state, after) or check_policy(after)
    return (asked.accepted(),) if fault is None else asked.refused(fault)


def _removed_with_jobs(state: State, policy: Policy) -> str | None:
    """Return which queue would be gone while jobs are in it, or None."""
    if state.policy is None:
        return None
    kept = {queue.path: True for queue in policy.queues}
    gone = [queue.path for queue in state.policy.queues if queue.path not in kept]
    if not gone:
        return None
    jobs: dict[str, list[str]] = {path: [] for path in gone}
    for job_id, job in sorted(state.jobs.items()):
        if job.spec.queue in jobs:
            jobs[job.spec.queue].append(job_id)
    for path in sorted(gone):
        if jobs[path]:
            named = ", ".join(jobs[path][:MAX_JOBS_LISTED]) + (", ..." if len(jobs[path]) > MAX_JOBS_LISTED else "")
            one = len(jobs[path]) == 1
            many, has = ("a job", "has") if one else (f"{len(jobs[path])} jobs", "have")
            return (
                f"queue '{path}' would be gone while {many} ({named}) that {has} not ended {'is' if one else 'are'} "
                "in it: cancel what is there or let it end first, or keep the queue"
            )
    return None
