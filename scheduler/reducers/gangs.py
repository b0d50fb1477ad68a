"""Facts of agents about gangs. Those about an attempt that is not live change nothing."""

from types import MappingProxyType

from msgspec.structs import replace

from gangline.events.control import LaunchFailed, RanksExited, RanksStarted
from gangline.events.types import Share
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.journal import put_job, put_node
from gangline.scheduler.reducers.nodes import give_back
from gangline.scheduler.state import Attempt, Job, ShareStatus, State
from gangline.scheduler.usage import milli_of, occupied

SIGNALS = MappingProxyType(
    {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
)

MAX_REASON_CHARACTERS = 1_000
"""Rounds repeat a reason, and must stay within a record."""


def ranks_started(state: State, event: RanksStarted) -> State:
    """Note that a share runs."""
    found = _find(state, event)
    if found is None:
        return state
    job, attempt, index = found
    return _put(state, job, attempt, index, replace(attempt.status[index], started=True))


def ranks_exited(state: State, event: RanksExited) -> State:
    """Note exits; free what a share held once no process of it is left."""
    found = _find(state, event)
    if found is None:
        return state
    job, attempt, index = found
    share = attempt.bound.shares[index]
    before = attempt.status[index]
    exited = before.exited
    failure = attempt.failure
    for exit_ in event.exits:
        local = exit_.rank - share.first_rank
        if not 0 <= local < len(share.gpus):
            raise Inapplicable(f"rank {exit_.rank} does not run on node {event.node_id!r}")
        if not exited >> local & 1:
            exited |= 1 << local
            if exit_.exit_code and failure is None and not attempt.is_stopping:
                failure = f"rank {exit_.rank} on node {event.node_id} {_ending(exit_.exit_code)}"
    gone = before.gone or event.gone
    all_exited = exited == (1 << len(share.gpus)) - 1
    if gone and not all_exited and failure is None and not attempt.is_stopping:
        failure = f"ranks on node {event.node_id} were lost"
    status = replace(before, exited=exited, gone=gone)
    state = _put(state, job, replace(attempt, failure=failure), index, status)
    return _free(state, job, share) if gone and not before.gone else state


def launch_failed(state: State, event: LaunchFailed) -> State:
    """Note why a share could not start; it holds nothing any more."""
    found = _find(state, event)
    if found is None or found[1].status[found[2]].gone:
        return state
    job, attempt, index = found
    status = replace(attempt.status[index], gone=True)
    final = attempt.retryable and not event.retryable
    if attempt.stop is None or attempt.stop.reason == "rank_failed":
        # Why no other attempt could do better says more than what was reported before it.
        failure = event.reason[:MAX_REASON_CHARACTERS] if final or attempt.failure is None else attempt.failure
        attempt = replace(attempt, failure=failure, retryable=not final and attempt.retryable)
    return _free(_put(state, job, attempt, index, status), job, attempt.bound.shares[index])


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    return f"was killed by signal {-exit_code}" + (f" ({SIGNALS[-exit_code]})" if -exit_code in SIGNALS else "")


def _find(state: State, event: RanksStarted | RanksExited | LaunchFailed) -> tuple[Job, Attempt, int] | None:
    job = state.jobs.get(event.job_id)
    if job is None or job.attempt is None or job.attempt.bound.attempt != event.attempt:
        return None
    for index, share in enumerate(job.attempt.bound.shares):
        if share.node_id == event.node_id:
            return job, job.attempt, index
    return None


def _put(state: State, job: Job, attempt: Attempt, index: int, status: ShareStatus) -> State:
    statuses = (*attempt.status[:index], status, *attempt.status[index + 1 :])
    return put_job(
        state,
        replace(job, attempt=replace(attempt, status=statuses)),
        touched=state.touched.set(job.job_id, True),  # noqa: FBT003 - a map used as a set
    )


def _free(state: State, job: Job, share: Share) -> State:
    state = occupied(state, job.spec.queue, -milli_of(share))
    node = state.nodes.get(share.node_id)
    if node is None:
        return state
    return put_node(state, give_back(node, share, job.job_id), placement_due=True)
