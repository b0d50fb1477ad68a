"""The nearest thing that would let a pending job start: an eviction, the end of another, a node, a queue's use."""

from collections.abc import Sequence

from gangline.events.decisions import PreemptionOrdered
from gangline.scheduler.explanation.ends import expected
from gangline.scheduler.explanation.question import Question
from gangline.scheduler.explanation.quotas import bars_of
from gangline.scheduler.explanation.quotas import change as quota_change
from gangline.scheduler.explanation.values import Change
from gangline.scheduler.explanation.waits import first_before, leaving_for, waits_for
from gangline.scheduler.explanation.words import named, span
from gangline.scheduler.fleet import Flags
from gangline.scheduler.placement import place_parts
from gangline.scheduler.reservations import attempt_end_us
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.round import Round
from gangline.scheduler.rules.placement import allowed_nodes
from gangline.scheduler.rules.room import room_for
from gangline.scheduler.state import Job, State

MAX_NODES_TRIED = 32
"""Nodes out of use that are tried one by one."""


def change_of_barred(state: State, job: Job, rule: str) -> Change:
    """Return what lets a job be tried that is not."""
    if rule == "held":
        return Change(kind="user", text=f"`gangline job release {job.job_id}`", subjects=(job.job_id,))
    if rule == "after":
        return _ends(state, waits_for(state, job))
    if rule == "array":
        running = [
            one
            for one in sorted(state.jobs)
            if state.jobs[one].array_id == job.array_id and state.jobs[one].attempt is not None
        ]
        return _ends(state, running, one_is_enough=True)
    if rule == "storage":
        return Change(kind="wait", text="when the store has room again, and its agent has said so")
    if rule == "upload":
        at_us = state.timers.get(f"upload {job.job_id}")
        left_us = None if at_us is None else max(at_us - state.now_us, 0)
        return Change(kind="wait", text="when the checkpoint is stored, or no longer waited for", in_us=left_us)
    leaving = leaving_for(state, job.job_id, state.room[job.job_id].shares)
    if not leaving:
        return Change(kind="start", text="with the next round", in_us=0, subjects=(job.job_id,))
    return Change(kind="end", text=f"when the ranks of {named(leaving)} are reported gone", subjects=tuple(leaving))


def change_of(question: Question) -> Change | None:
    """Return what lets a job start that waits for quota or room; None if nothing that is known would."""
    bars = bars_of(question)
    if bars:
        return quota_change(question, bars)
    _, allowed = allowed_nodes(question.state, question.policy, question.views, question.job)
    if place_parts(question.views.nodes.fit, question.shape, allowed):
        heads = first_before(question) if question.policy.head_blocks else ()
        text = f"when {heads[0]} starts" if heads else "with the next round"
        return Change(kind="start", text=text, in_us=None if heads else 0, subjects=heads[:1])
    found = [_evictions(question), _next_end(question, allowed), _node_in_use_again(question, allowed)]
    known = [one for one in found if one is not None]
    if not known:
        return None
    # What is sure to come before what depends on people, and the sooner the better.
    first = min(known, key=lambda one: (one.in_us is None, one.in_us or 0))
    others = [one for one in known if one is not first and one.kind == "uncordon"]
    return Change(
        kind=first.kind,
        text="; or ".join(one.text for one in (first, *others)),
        in_us=first.in_us,
        subjects=first.subjects,
    )


def _ends(state: State, job_ids: Sequence[str], *, one_is_enough: bool = False) -> Change:
    """Return when jobs are expected to end, as far as that is known."""
    ends = {}
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is not None and job.attempt is not None:
            ends[job_id] = max(attempt_end_us(state, job, job.attempt) - state.now_us, 0)
    said = f"when {'one of ' * one_is_enough}{named(job_ids)} {'ends' if len(job_ids) == 1 else 'end'}"
    if len(ends) < len(job_ids) or not ends:
        return Change(kind="wait", text=said, subjects=tuple(job_ids))
    lefts_us = sorted(left_us for _, left_us in sorted(ends.items()))
    left_us = lefts_us[0] if one_is_enough else lefts_us[-1]
    return Change(
        kind="end", text=f"{said}, {expected(state, job_ids, left_us)}", in_us=left_us, subjects=tuple(job_ids)
    )


def _evictions(question: Question) -> Change | None:
    """Return who would give way if room were made for it now."""
    state, policy = question.state, question.policy
    decisions = room_for(Round(state, question.views), policy, question.job)
    orders = [one for one in decisions if isinstance(one, PreemptionOrdered)]
    if not orders:
        return None
    interval_us = policy.room_interval_us
    left_us = interval_us - state.now_us % interval_us
    jobs = [one.job_id for one in orders]
    reasons = ", ".join(dict.fromkeys(one.reason for one in orders))
    text = f"when room is made for it, every {span(interval_us)} in turn: {named(jobs)} can give way to it ({reasons})"
    return Change(kind="evict", text=text, in_us=left_us, subjects=tuple(jobs))


def _next_end(question: Question, allowed: Flags | None) -> Change | None:
    """Return which running jobs have to end until it fits, if they end in the order in which they are expected to."""
    state = question.state
    ends = sorted(
        (attempt_end_us(state, job, job.attempt), job_id)
        for job_id, job in sorted(state.jobs.items())
        if job.attempt is not None
    )

    def fits(number: int) -> bool:
        trial = Trial(state, question.views.nodes)
        for _, job_id in ends[:number]:
            trial.without(state.jobs[job_id])
        return trial.place(question.shape, allowed) is not None

    if not ends or not fits(len(ends)):
        return None
    low, high = 1, len(ends)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    at_us, last = ends[low - 1]
    needed = _needed(question, allowed, [job_id for _, job_id in ends[:low]])
    left_us = max(at_us - state.now_us, 0)
    verb = "ends" if len(needed) == 1 else "end"
    text = f"when {named(needed)} {verb}, {expected(state, needed, left_us)}"
    return Change(kind="end", text=text, in_us=left_us, subjects=tuple(needed) or (last,))


def _needed(question: Question, allowed: Flags | None, jobs: Sequence[str]) -> list[str]:
    """Return those of the jobs that have something of the nodes on which it would start."""
    state = question.state
    trial = Trial(state, question.views.nodes)
    for job_id in jobs:
        trial.without(state.jobs[job_id])
    shares = trial.place(question.shape, allowed)
    given = {share.node_id: True for share in shares or ()}
    found = []
    for job_id in jobs:
        attempt = state.jobs[job_id].attempt
        if attempt is not None and any(share.node_id in given for share in attempt.bound.shares):
            found.append(job_id)
    return found


def _node_in_use_again(question: Question, allowed: Flags | None) -> Change | None:
    """Return which node would have to be used again, if one is enough; else all that are out of use."""
    out = [
        node.node_id
        for node in question.fleet
        if question.takes(node)
        and (node.cordoned or node.draining or node.quarantined)
        and not (node.lost or node.stale)
    ]
    if not out:
        return None
    tries = [[one] for one in out[:MAX_NODES_TRIED]] + ([out] if len(out) > 1 else [])
    for tried in tries:
        if _would_fit(question, allowed, tried):
            command = f"`gangline node uncordon {tried[0]}`" if len(tried) == 1 else "`gangline node uncordon`"
            return Change(
                kind="uncordon",
                text=f"{command} of {named(tried)}" if len(tried) > 1 else command,
                subjects=tuple(tried),
            )
    for tried in tries:
        if _would_fit(question, allowed, tried, empty=True):
            text = f"`gangline node uncordon` of {named(tried)}, and then when what runs there has ended"
            return Change(kind="uncordon", text=text, subjects=tuple(tried))
    return None


def _would_fit(question: Question, allowed: Flags | None, node_ids: Sequence[str], *, empty: bool = False) -> bool:
    """Whether the job would fit if these nodes were used again, and, if `empty`, nothing ran anywhere."""
    trial = Trial(question.state, question.views.nodes)
    for node_id in node_ids:
        trial.fleet.set_blocked(trial.fleet.row[node_id], blocked=False)
    for _, job in sorted(question.state.jobs.items()) if empty else ():
        trial.without(job)
    return trial.place(question.shape, allowed) is not None
