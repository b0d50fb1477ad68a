"""Facts of agents about gangs. Those about an attempt that is not live free what was still held for it, if anything."""

from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from gangline.events.control import LaunchFailed, RanksExited, RanksStarted
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.holding import give_back, give_back_stale
from gangline.scheduler.journal import put_job, put_node
from gangline.scheduler.reducers.checkpoints import upload_over
from gangline.scheduler.reducers.faults import note_fault
from gangline.scheduler.state import Attempt, Job, ShareStatus, State
from gangline.scheduler.usage import milli_of, occupied

SIGNALS = MappingProxyType(
    {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
)

MAX_REASON_CHARACTERS = 1_000
"""Rounds repeat a reason, and must stay within a record."""


class _Part(NamedTuple):
    """What of a live attempt is on one node: the places of its shares, which start and end together."""

    job: Job
    attempt: Attempt
    places: tuple[int, ...]

    @property
    def is_gone(self) -> bool:
        return all(self.attempt.status[place].gone for place in self.places)


def ranks_started(state: State, event: RanksStarted) -> State:
    """Note that a node's shares run."""
    part = _find(state, event)
    if part is None:
        return state
    status = tuple(
        replace(status, started=True) if place in part.places else status
        for place, status in enumerate(part.attempt.status)
    )
    return _put(state, part.job, replace(part.attempt, status=status))


def ranks_exited(state: State, event: RanksExited) -> State:
    """Note exits; free what the shares held once no process of them is left."""
    part = _find(state, event)
    if part is None:
        return _free_stale(state, event) if event.gone else state
    attempt = part.attempt
    status = list(attempt.status)
    failure = attempt.failure
    for exit_ in event.exits:
        place = next((place for place in part.places if exit_.rank in attempt.bound.shares[place].ranks), None)
        if place is None:
            raise Inapplicable(f"rank {exit_.rank} does not run on node {event.node_id!r}")
        bit = 1 << (exit_.rank - attempt.bound.shares[place].first_rank)
        if not status[place].exited & bit:
            status[place] = replace(status[place], exited=status[place].exited | bit)
            if exit_.exit_code and failure is None and not attempt.is_stopping:
                failure = f"rank {exit_.rank} on node {event.node_id} {_ending(exit_.exit_code)}"
    all_exited = all(status[place].exited == (1 << len(attempt.bound.shares[place].ranks)) - 1 for place in part.places)
    if event.gone and not all_exited and failure is None and not attempt.is_stopping:
        failure = f"ranks on node {event.node_id} were lost"
    after = replace(attempt, failure=failure, status=tuple(status))
    if event.gone and not part.is_gone:
        return _free(state, _Part(part.job, after, part.places), event.node_id)
    return _put(state, part.job, after)


def launch_failed(state: State, event: LaunchFailed) -> State:
    """Note why a node's shares could not start; they hold nothing any more."""
    part = _find(state, event)
    if part is None:
        return _free_stale(state, event)
    if part.is_gone:
        return state
    if event.blame == "node":
        state = note_fault(state, event.node_id, f"it could not launch {event.job_id}: {event.reason}", event.job_id)
    attempt = part.attempt
    final = attempt.retryable and not event.retryable
    if attempt.stop is None or attempt.stop.reason == "rank_failed":
        # Why no other attempt could do better says more than what was reported before it.
        if final or attempt.failure is None:
            attempt = replace(attempt, failure=event.reason[:MAX_REASON_CHARACTERS], blame=event.blame)
        attempt = replace(attempt, retryable=not final and attempt.retryable)
    return _free(state, _Part(part.job, attempt, part.places), event.node_id)


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    return f"was killed by signal {-exit_code}" + (f" ({SIGNALS[-exit_code]})" if -exit_code in SIGNALS else "")


def _find(state: State, event: RanksStarted | RanksExited | LaunchFailed) -> _Part | None:
    job = state.jobs.get(event.job_id)
    if job is None or job.attempt is None or job.attempt.bound.attempt != event.attempt:
        return None
    shares = job.attempt.bound.shares
    places = tuple(place for place, share in enumerate(shares) if share.node_id == event.node_id)
    return _Part(job, job.attempt, places) if places else None


def _put(state: State, job: Job, attempt: Attempt) -> State:
    touched = state.touched.set(job.job_id, True)  # noqa: FBT003 - a map used as a set
    return put_job(state, replace(job, attempt=attempt), touched=touched)


def _free(state: State, part: _Part, node_id: str) -> State:
    """Note a node's shares gone, and give back what they held of it."""
    status: tuple[ShareStatus, ...] = tuple(
        replace(status, gone=True) if place in part.places else status
        for place, status in enumerate(part.attempt.status)
    )
    for place in part.places:
        share = part.attempt.bound.shares[place]
        state = occupied(state, part.job.spec.queue, -milli_of(share))
        node = give_back(state.nodes[node_id], share, part.job.job_id)
        state = put_node(state, node, placement_due=True)
    state = _put(state, part.job, replace(part.attempt, status=status))
    if any(part.attempt.bound.shares[place].first_rank == 0 for place in part.places):
        # The agent of rank 0 reports every checkpoint before it reports this.
        state = upload_over(state, state.jobs[part.job.job_id])
    return state


def _free_stale(state: State, event: RanksExited | LaunchFailed) -> State:
    """Give back what an attempt that ended without this node still held there."""
    node = state.nodes.get(event.node_id)
    if node is None or not any((one.job_id, one.attempt) == (event.job_id, event.attempt) for one in node.stale):
        return state
    return put_node(state, give_back_stale(node, event.job_id, event.attempt), placement_due=True)
