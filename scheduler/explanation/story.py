"""What was decided of a job, one sentence a decision, and why a gang was bound to just these nodes."""

from typing import NamedTuple

from gangline.events.amounts import milli_shown
from gangline.events.decisions import (
    AttemptEnded,
    AttemptPreempted,
    AttemptStopOrdered,
    GangBound,
    JobAdmitted,
    JobEnded,
    JobRequeued,
    NodesReserved,
    PreemptionOrdered,
    ReservationDropped,
    RoomHeld,
    RoomReleased,
    RuntimeWarned,
)
from gangline.events.types import Decision, Share
from gangline.scheduler.explanation.nodes import NodeReasons
from gangline.scheduler.explanation.question import Question
from gangline.scheduler.explanation.running import WHY
from gangline.scheduler.explanation.waits import before
from gangline.scheduler.explanation.words import count, named, span
from gangline.scheduler.shapes import is_gang
from gangline.scheduler.state import State
from gangline.scheduler.turns import is_within
from gangline.scheduler.views import Views
from gangline.scheduler.views.uses import quota_is_on


class Chapter(NamedTuple):
    """A decision about a job: its kind, and what it says."""

    kind: str
    text: str


def chapter(decision: Decision, job_id: str) -> Chapter | None:
    """Return what a decision says of a job; None if it is not about this one."""
    if isinstance(decision, JobAdmitted) and job_id.startswith(f"{decision.job_id}."):
        return Chapter(type(decision).__name__, "its array was admitted")
    if job_id not in {getattr(decision, "job_id", None), getattr(decision, "claimant", None)}:
        return None
    text = _of_claimant(decision) if getattr(decision, "job_id", None) != job_id else _text(decision)
    return None if text is None else Chapter(type(decision).__name__, text)


def _of_claimant(decision: Decision) -> str | None:
    if isinstance(decision, PreemptionOrdered):
        return f"{decision.job_id} was told to give way for it ({decision.reason}: {WHY[decision.reason]})"
    return None


def _text(decision: Decision) -> str | None:  # noqa: C901 - one line for each kind
    match decision:
        case JobAdmitted():
            return "it was admitted"
        case GangBound():
            return f"attempt {decision.attempt} was placed on {_places(decision.shares)}"
        case PreemptionOrdered():
            for_whom = f" for {decision.claimant}" if decision.claimant else ""
            why = f"{decision.reason}: {WHY[decision.reason]}"
            return f"attempt {decision.attempt} was told to give way{for_whom} ({why})"
        case AttemptStopOrdered():
            return f"attempt {decision.attempt} was told to stop ({decision.reason})"
        case AttemptPreempted():
            return f"attempt {decision.attempt} was gone: {decision.cause}"
        case AttemptEnded():
            return f"attempt {decision.attempt} {_ended(decision)}"
        case JobRequeued():
            return f"it was queued again: {decision.cause}"
        case JobEnded():
            return f"it {_ended(decision)}"
        case RoomHeld():
            return f"room was held for it on {_places(decision.shares)} ({decision.reason})"
        case RoomReleased() | ReservationDropped():
            what = "what was held" if isinstance(decision, RoomReleased) else "its reservation"
            return f"{what} was given up: {decision.cause}"
        case NodesReserved(node_ids=()):
            return "what it lacks of quota was kept for it"
        case NodesReserved():
            return f"{named(decision.node_ids)} {'was' if len(decision.node_ids) == 1 else 'were'} reserved for it"
        case RuntimeWarned():
            return f"it was warned: its max_runtime is over in {span(decision.left_us)}"
        case _:
            return None


def _ended(decision: AttemptEnded | JobEnded) -> str:
    outcome = "was cancelled" if decision.outcome == "cancelled" else decision.outcome
    return outcome if decision.cause == decision.outcome else f"{outcome}: {decision.cause}"


def _places(shares: tuple[Share, ...]) -> str:
    return named(list(dict.fromkeys(share.node_id for share in shares)))


def why_there(state: State, bound: GangBound) -> list[str]:
    """Return why a gang was bound to just these nodes; `state` is that just before the decision."""
    job = state.jobs[bound.job_id]
    policy = state.policy
    if policy is None:
        return []
    views = Views()
    views.sync(state)
    question = Question(state, policy, views, job)
    return [_turn(question), *_place(question, bound)]


def _turn(question: Question) -> str:
    """Return in which class its turn came, and what its queue used by then."""
    state, policy, views, job = question
    path = job.spec.queue
    if job.recovering and "recovering_first" in policy.rules:
        return "recovering jobs come before all others"
    _, number = before(question)
    line = f"{count(number, 'pending job')} had an earlier turn" if number else "it was first of all that were pending"
    if not quota_is_on(policy) or not question.shape.milli:
        return line
    uses = views.uses
    gpu_type = min(question.shape.gpu_types or uses.tree.types)
    used, has = uses.use[path, gpu_type], uses.tree.limits(path, gpu_type).guarantee_milli
    if job.job_id in state.room:
        # What is held for it counts already.
        within, what = used <= has, ", what is held for it included,"
    else:
        within, what = is_within(views, policy, path, question.shape), ","
    stands = "stays within its guarantee with it" if within else "borrows for it"
    return (
        f"{line}; queue '{path}', which used {milli_shown(used)} of {milli_shown(has)} GPUs guaranteed{what} {stands}"
    )


def _place(question: Question, bound: GangBound) -> list[str]:
    state, job = question.state, question.job
    room = state.room.get(job.job_id)
    if room is not None:
        return [f"room was held for it there ({room.reason}: {WHY[room.reason]})"]
    reasons = NodeReasons(question)
    could = [node for node in question.fleet if not reasons.of(node)]
    nodes = [state.nodes[node_id] for node_id in dict.fromkeys(share.node_id for share in bound.shares)]
    if is_gang(question.spec, question.widest()):
        pods = list(dict.fromkeys(node.pod for node in nodes))
        could_hold = f"{count(len(could), 'node')} could hold a part of it"
        rule = "whole nodes come from the fullest pod that holds them, else from the fewest pods"
        return [f"{could_hold}; {rule}: it took {named(pods)}"]
    node = nodes[0]
    free = f"{node.whole_free} of its {len(node.gpus)} GPUs were wholly free"
    if len(could) == 1:
        return [f"{node.node_id} was the only node that could hold it: {free}"]
    others = f"of {count(len(could), 'node')} that could hold it"
    return [f"{others}, {node.node_id} loses the least by it for the jobs to come: {free}"]
