"""`explain(state, job_id)`: why a job waits, or what it does, and the nearest thing that would change it.

Pure, and as of just after a round: asked of the state at any index of the log, it answers for that moment.
"""

from gangline.scheduler.arrays import members
from gangline.scheduler.elastic import waiting
from gangline.scheduler.explanation.nodes import NodeReasons
from gangline.scheduler.explanation.question import Question
from gangline.scheduler.explanation.running import history_notes, running_notes, running_text
from gangline.scheduler.explanation.soonest import change_of, change_of_barred
from gangline.scheduler.explanation.values import Explanation, NodeReason
from gangline.scheduler.explanation.waits import Waits, barrier_of, before, waits_of
from gangline.scheduler.state import Job, JobArray, State
from gangline.scheduler.views import Views

__all__ = ["explain", "explanation", "why_not"]


def explain(state: State, job_id: str, views: Views | None = None) -> str:
    """Return one sentence or a few about a job; whoever asks about many of one state keeps one `views` for them."""
    return explanation(state, job_id, views, with_change=False).text


def explanation(state: State, job_id: str, views: Views | None = None, *, with_change: bool = True) -> Explanation:
    """Return all that is known of why a job stands as it does; what would change it costs a search."""
    job = state.jobs.get(job_id)
    if job is None:
        return _ended(state, job_id)
    views = Views() if views is None else views
    views.sync(state)
    attempt = job.attempt
    if attempt is not None:
        return Explanation(
            job_id=job_id,
            standing="stopping" if attempt.is_stopping else "running",
            rule="",
            text=running_text(job, attempt),
            notes=(*running_notes(state, state.policy, views, job, attempt), *history_notes(job)),
        )
    return _pending(state, views, job, with_change=with_change)


def why_not(state: State, job_id: str, node_id: str) -> tuple[NodeReason, ...]:
    """Return everything that keeps a job from a node; nothing if the node could hold it, or its part of it.

    Of a running job it is as if it asked again. Raises KeyError for a job or node that the state does not know.
    """
    job, node = state.jobs[job_id], state.nodes[node_id]
    if state.policy is None:
        return (NodeReason(kind="policy", text="no policy is active yet"),)
    views = Views()
    views.sync(state)
    found = list(NodeReasons(Question(state, state.policy, views, waiting(state.policy, job))).of(node))
    barrier = barrier_of(state, job) if job.attempt is None else None
    if barrier is not None:
        found.append(NodeReason(kind=barrier.rule, text=f"wherever: {barrier.text}"))
    return tuple(found)


def _ended(state: State, job_id: str) -> Explanation:
    array = state.arrays.get(job_id)
    if array is not None:
        return _array(state, array)
    outcome = state.ended.get(job_id)
    if outcome is not None:
        return Explanation(job_id=job_id, standing="ended", rule="", text=f"it has ended: {outcome}")
    text = f"no job '{job_id}' is known here: it was never admitted, or it ended so long ago that the core forgot it"
    return Explanation(job_id=job_id, standing="unknown", rule="", text=text)


def _array(state: State, array: JobArray) -> Explanation:
    """Return how the jobs of an array stand; each is asked for itself."""
    jobs = [state.jobs[one] for one in members(state, array.array_id)]
    running = [job for job in jobs if job.attempt is not None]
    waits = [job for job in jobs if job.attempt is None]
    ask = f": `gangline why {waits[0].job_id}` says what holds the first one that waits" if waits else ""
    return Explanation(
        job_id=array.array_id,
        standing="running" if running else "pending",
        rule="",
        text=f"it is an array of {array.size}, of which {array.size - array.left} have ended ({array.failed} without "
        f"success), {len(running)} run and {len(waits)} wait{ask}",
    )


def _pending(state: State, views: Views, job: Job, *, with_change: bool) -> Explanation:
    barrier = barrier_of(state, job)
    if barrier is not None:
        return Explanation(
            job_id=job.job_id,
            standing="pending",
            rule=barrier.rule,
            text=barrier.text,
            change=change_of_barred(state, job, barrier.rule) if with_change else None,
            notes=tuple(history_notes(job)),
        )
    if state.policy is None:
        return Explanation(
            job_id=job.job_id, standing="pending", rule="order", text="it waits: no policy is active yet"
        )
    question = Question(state, state.policy, views, waiting(state.policy, job))
    first, number = before(question)
    waits: Waits = waits_of(question)
    line = f"it waits, with {number} pending before it" if number else "it waits, first of all that are pending"
    return Explanation(
        job_id=job.job_id,
        standing="pending",
        rule=waits.rule,
        text=f"{line}: {waits.text}",
        nodes=waits.nodes,
        before=first,
        before_count=number,
        change=change_of(question) if with_change else None,
        notes=tuple(history_notes(job)),
    )
