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


def decide(round_: Round) -> None:
    """Release what cannot be bound any more, or has been held too long."""
    state = round_.state
    for job_id in sorted(state.room):
        room = state.room[job_id]
        job = state.jobs.get(job_id)
        cause = _over(state, job, room)
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
    if room.until_us is not None and room.until_us <= state.now_us and "upload" not in job.barriers:
        return "it was held long enough"
    return None


def _lost(state: State, share: Share) -> str | None:
    node = state.nodes.get(share.node_id)
    if node is None or node.is_blocked:
        return f"nothing new starts on node {share.node_id}"
    for gpu in share.gpus:
        if gpu not in node.gpus or gpu in node.broken_gpus:
            return f"GPU {gpu} of node {share.node_id} is gone"
    return None
