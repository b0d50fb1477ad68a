"""What holds a pending job: its user, what it waits for, what is held for it, quota, the order, or the nodes."""

from typing import NamedTuple

from gangline.events.amounts import size_shown
from gangline.events.types import Share
from gangline.scheduler.arrays import members
from gangline.scheduler.explanation.needs import need
from gangline.scheduler.explanation.nodes import NodeReasons
from gangline.scheduler.explanation.question import Question
from gangline.scheduler.explanation.quotas import bars_of, sentence
from gangline.scheduler.explanation.values import NodeCount
from gangline.scheduler.explanation.words import MAX_NAMED, count, named, span
from gangline.scheduler.placement import place_parts
from gangline.scheduler.recovery import is_whole
from gangline.scheduler.rules.placement import allowed_nodes
from gangline.scheduler.state import Job, State
from gangline.scheduler.turns import turn_of_job
from gangline.scheduler.views.pending import may_start


class Waits(NamedTuple):
    """The rule that holds a job, in words, and the nodes by what keeps it from them."""

    rule: str
    text: str
    nodes: tuple[NodeCount, ...] = ()


def barrier_of(state: State, job: Job) -> Waits | None:
    """Return what keeps a job from being tried at all; None if it waits for room and its turn."""
    if job.held:
        return Waits("held", f"it is held by its user: `gangline job release {job.job_id}` lets it start")
    for barrier, told in (("after", _after), ("array", _array), ("storage", _storage), ("upload", _upload)):
        if barrier in job.barriers:
            return Waits(barrier, told(state, job))
    room = state.room.get(job.job_id)
    if room is not None:
        return Waits("claim", _claim(state, job))
    return None


def waits_of(question: Question) -> Waits:
    """Return what holds a job that may be tried."""
    state, views, spec, shape = question.state, question.views, question.spec, question.shape
    if not question.fleet:
        return Waits("nodes", "no node has registered yet; start an agent")
    if not any(question.takes(node) for node in question.fleet):
        return Waits("nodes", f"no node has a GPU of type {' or '.join(sorted(spec.gpu_types))}")
    bars = bars_of(question)
    if bars:
        return Waits("quota", "; ".join(dict.fromkeys(sentence(question, bar) for bar in bars)))
    _, allowed = allowed_nodes(state, question.policy, views, question.job)
    if place_parts(views.nodes.fit, shape, allowed):
        first = first_before(question)
        if question.policy.head_blocks and first:
            return Waits("order", f"nothing starts before {first[0]}, the first in the order, does")
        return Waits("ports", "it fits now, and starts with the next round unless the ports of its node are used up")
    reasons = NodeReasons(question)
    nodes = reasons.counts()
    text = f"{need(question, reasons)}; {_of_nodes(nodes)}{_beside(question)}{_reserved_for(question)}"
    if not place_parts(views.nodes.empty, shape):
        text = f"{text}; the nodes have changed since it was admitted, and even empty they do not hold it: cancel it"
    return Waits("nodes", text, nodes)


def before(question: Question) -> tuple[tuple[str, ...], int]:
    """Return the first pending jobs that are tried before this one, and how many there are."""
    state, policy, views = question.state, question.policy, question.views
    turn = turn_of_job(state, policy, views, question.job)
    turns = [
        (found, other)
        for other in sorted(state.pending)
        if may_start(state, state.jobs[other])
        and (found := turn_of_job(state, policy, views, state.jobs[other])) < turn
    ]
    return tuple(other for _, other in sorted(turns)[:MAX_NAMED]), len(turns)


def first_before(question: Question) -> tuple[str, ...]:
    """Return the first pending jobs that are tried before this one."""
    return before(question)[0]


def _of_nodes(nodes: tuple[NodeCount, ...]) -> str:
    total = sum(one.nodes for one in nodes)
    return f"of {count(total, 'node')}: {', '.join(one.text for one in nodes)}"


def _beside(question: Question) -> str:
    """Return that only a gang's roles find no room, if that is so."""
    if not question.shape.roles or not place_parts(question.views.nodes.fit, question.shape._replace(roles=())):
        return ""
    names = named([f"{role.ranks} x {role.name}" for role in question.shape.roles])
    return f"; its GPUs' ranks would fit, but not its roles ({names}) beside them"


def _reserved_for(question: Question) -> str:
    reserved = question.state.reserved.get(question.job.job_id)
    if reserved is None or not reserved.node_ids:
        return ""
    left = span(reserved.free_at_us - question.state.now_us)
    one = len(reserved.node_ids) == 1
    return f"; {named(reserved.node_ids)} {'is' if one else 'are'} reserved for it and expected to be free in {left}"


def waits_for(state: State, job: Job) -> tuple[str, ...]:
    """Return the jobs that have to succeed before a job, or the array that it belongs to, may start."""
    return state.waits.get(job.job_id) or state.waits.get(job.array_id) or ()


def _after(state: State, job: Job) -> str:
    others = waits_for(state, job)
    told = [f"{other} ({_standing(state, other)})" for other in others]
    return f"it starts when {named(told)} {'has' if len(told) == 1 else 'have'} succeeded"


def _standing(state: State, job_id: str) -> str:
    job = state.jobs.get(job_id)
    if job is not None:
        return "pending" if job.attempt is None else "running"
    array = state.arrays.get(job_id)
    return (
        f"{array.left} of {count(array.size, 'job')} left" if array is not None else state.ended.get(job_id, "unknown")
    )


def _array(state: State, job: Job) -> str:
    running = [one for one in members(state, job.array_id) if state.jobs[one].attempt is not None]
    return (
        f"its array runs at most {job.spec.array_parallel} of its jobs at a time (array_parallel), and it is number "
        f"{job.array_index}; {count(len(running), 'job runs', 'jobs run')} now"
    )


def _storage(state: State, job: Job) -> str:
    stores = named(sorted(state.pressed))
    return (
        f"storage is nearly full ({stores}), and it is to write {size_shown(job.spec.data_bytes)}: new jobs that write "
        "so much wait until there is room again"
    )


def _upload(state: State, job: Job) -> str:
    step = "" if job.uploading is None else f" of step {job.uploading.step}"
    at_us = state.timers.get(f"upload {job.job_id}")
    most = "" if at_us is None else f", for another {span(at_us - state.now_us)} at most"
    return f"a checkpoint{step} of its last attempt is still being stored, from which it is to go on{most}"


def _claim(state: State, job: Job) -> str:
    room = state.room[job.job_id]
    places = named(list(dict.fromkeys(share.node_id for share in room.shares)))
    if not is_whole(state.policy, job.spec, room.shares):
        held = sum(len(share.gpus) for share in room.shares)
        lapses = "" if room.until_us is None else f", for another {span(max(room.until_us - state.now_us, 0))} at most"
        return (
            f"{count(held, 'GPU')} on {places} are held for it{lapses}; it starts as soon as others leave the rest of "
            "what it needs"
        )
    leaving = leaving_for(state, job.job_id, room.shares)
    left = f"until {named(leaving)} {'has' if len(leaving) == 1 else 'have'} left" if leaving else "for the next round"
    return f"room is held for it on {places} ({room.reason}), and it starts there; it waits {left}"


def leaving_for(state: State, claimant: str, shares: tuple[Share, ...]) -> list[str]:
    """Return who still has something of what is held for a claimant."""
    found: list[str] = []
    for share in shares:
        node = state.nodes.get(share.node_id)
        for job_id in () if node is None else node.held:
            attempt = state.jobs[job_id].attempt
            if attempt is None or job_id == claimant or job_id in found:
                continue
            if any(
                one.node_id == share.node_id and any(gpu in share.gpus for gpu in one.gpus)
                for one in attempt.bound.shares
            ):
                found.append(job_id)
    return found
