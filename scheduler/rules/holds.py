"""What is held for a claimant is let go when it can no longer become his.

Of what is held for a gang that recovers or is resized the rest stays held if a part of it is lost, and all of it while
an upload is waited for, which has a deadline of its own.
"""

from gangline.events.decisions import RoomHeld, RoomReleased
from gangline.events.policy import Policy
from gangline.events.types import Share
from gangline.scheduler.recovery import reduced
from gangline.scheduler.round import Round
from gangline.scheduler.state import Job, State
from gangline.scheduler.views.uses import quota_is_on

OWN = ("move", "grow", "shrink")
"""Reasons to give way for which the next attempt has something held for it."""


def decide(round_: Round) -> None:
    """Release what cannot be bound any more, or has been held too long."""
    state = round_.state
    for job_id in sorted(state.room):
        room = state.room[job_id]
        job = state.jobs.get(job_id)
        cause = _over(state, job, room) or _barred(round_, job, room) or _changed(state, job, room)
        decision: RoomHeld | RoomReleased | None = None
        if cause is not None:
            decision = RoomReleased(job_id=job_id, cause=cause)
        elif (
            lost := next((one for share in room.shares if (one := _lost(state, share)) is not None), None)
        ) is not None:
            less = None if job is None else reduced(state, round_.policy or Policy(), job, room)
            decision = RoomReleased(job_id=job_id, cause=lost) if less is None else less
        if decision is not None and not round_.emit(decision):
            return


def _over(state: State, job: Job | None, room: RoomHeld) -> str | None:
    """Return why the job will not be bound to anything that is held for it; None if it may be."""
    if job is None or job.cancelled:
        return "the job has ended"
    if job.held:
        return "the job is held by its user"
    if any(barrier != "upload" for barrier in job.barriers):
        return "the job may not start now"
    if room.until_us is not None and room.until_us <= state.now_us and "upload" not in job.barriers:
        return "it was held long enough"
    return None


def _barred(round_: Round, job: Job | None, room: RoomHeld) -> str | None:
    """Return which limit was lowered so far that a claimant may not start on what is held for it; None if it may.

    Limits that are lowered stop nobody who runs: so who only starts anew on what he has keeps it.
    """
    policy, uses = round_.policy, round_.views.uses
    if job is None or policy is None or not quota_is_on(policy) or _starts_anew(job, room):
        return None
    for queue, gpu_type, _, preemptible in uses.charges.get(job.job_id, ()):
        if not uses.allows(queue, gpu_type, 0, preemptible=preemptible):
            return f"queue {queue} may not have so much any more"
    return None


def _starts_anew(job: Job, room: RoomHeld) -> bool:
    """Whether something is held for a job because it failed, is moved or resized, and not because others give way."""
    if room.until_us is not None:
        return True
    evicted = job.evicted
    return evicted is not None and evicted.attempt == job.attempts and evicted.reason == room.reason in OWN


def _changed(state: State, job: Job | None, room: RoomHeld) -> str | None:
    """Return which node came back as another one, so that the job may not have it any more; None if none did."""
    own = [share for share in room.shares if not share.role and share.node_id in state.nodes]
    nodes = [state.nodes[share.node_id] for share in own if share.gpus]
    if job is None or not nodes:
        return None
    accepted = job.spec.gpu_types or (nodes[0].gpu_type,)
    for node in nodes:
        if node.gpu_type not in accepted or node.gpu_type != nodes[0].gpu_type:
            return f"node {node.node_id} has GPUs of type {node.gpu_type} now"
        if job.spec.topology_required == "pod" and node.pod != nodes[0].pod:
            return f"node {node.node_id} is in pod {node.pod} now"
    return None


def _lost(state: State, share: Share) -> str | None:
    node = state.nodes.get(share.node_id)
    if node is None or node.is_blocked:
        return f"nothing new starts on node {share.node_id}"
    for gpu in share.gpus:
        if gpu not in node.gpus or gpu in node.broken_gpus:
            return f"GPU {gpu} of node {share.node_id} is gone"
    return None
