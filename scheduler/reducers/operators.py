"""What accepted commands of operators and users do: to nodes, jobs and queues."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gangline.events import control
from gangline.events.policy import Policy, with_queue, without_queue
from gangline.events.types import Event
from gangline.scheduler.arrays import members, places_asked_for, places_given_up
from gangline.scheduler.journal import put_job, put_node, put_policy_changed
from gangline.scheduler.reducers.faults import MAX_REASON_CHARACTERS, mended
from gangline.scheduler.reducers.storage import follow_all
from gangline.scheduler.state import State


def accepted(state: State, command: Event) -> State:
    """Return the state in which what a command asks for holds. Other commands have answers of their own."""
    apply = _ACCEPTED.get(type(command))
    return state if apply is None else apply(state, command)


def in_force(state: State, policy: Policy) -> State:
    """Return the state with another policy, effective from the next tick."""
    return follow_all(put_policy_changed(replace(state, policy=policy, policy_is_new=True)))


def _cordoned(state: State, command: control.CordonNode) -> State:
    node = state.nodes[command.node_id]
    reason = command.reason[:MAX_REASON_CHARACTERS]
    return put_node(state, replace(node, cordoned=True, cordon_reason=reason))


def _drained(state: State, command: control.DrainNode) -> State:
    node = state.nodes[command.node_id]
    reason = command.reason[:MAX_REASON_CHARACTERS]
    return put_node(state, replace(node, draining=True, cordon_reason=reason))


def _uncordoned(state: State, command: control.UncordonNode) -> State:
    node = state.nodes[command.node_id]
    return mended(put_node(state, replace(node, cordoned=False, draining=False, cordon_reason="")), command.node_id)


def _held(state: State, command: control.HoldJob) -> State:
    for member in members(state, command.job_id):
        job = state.jobs[member]
        if job.held:
            continue
        if job.attempt is None:
            # Who is held waits for nobody but his user: that time counts for no rule.
            waited_us = job.waited_us + state.now_us - job.pending_since_us
            job = replace(job, waited_us=waited_us, pending_since_us=state.now_us)
        state = put_job(state, replace(job, held=True))
    return places_given_up(state, [state.jobs[member] for member in members(state, command.job_id)])


def _released(state: State, command: control.ReleaseJob) -> State:
    for member in members(state, command.job_id):
        job = state.jobs[member]
        if job.held:
            since_us = state.now_us if job.attempt is None else job.pending_since_us
            state = put_job(state, replace(job, held=False, pending_since_us=since_us), placement_due=True)
    return places_asked_for(state, [state.jobs[member] for member in members(state, command.job_id)])


def _forgiven(state: State, command: control.RetryJob) -> State:
    for member in members(state, command.job_id):
        job = replace(state.jobs[member], failures_in_row=0, excused_in_row=0, immediate_in_row=0)
        state = put_job(state, job)
    return state


def _reprioritised(state: State, command: control.ReprioritiseJob) -> State:
    for member in members(state, command.job_id):
        job = state.jobs[member]
        spec = replace(job.spec, priority=command.priority)
        state = put_job(state, replace(job, spec=spec), placement_due=True)
    return state


def _queue_set(state: State, command: control.SetQueue) -> State:
    return state if state.policy is None else in_force(state, with_queue(state.policy, command.queue))


def _queue_removed(state: State, command: control.RemoveQueue) -> State:
    return state if state.policy is None else in_force(state, without_queue(state.policy, command.path))


_ACCEPTED: Mapping[type, Callable[[State, Any], State]] = MappingProxyType(
    {
        control.CordonNode: _cordoned,
        control.DrainNode: _drained,
        control.UncordonNode: _uncordoned,
        control.HoldJob: _held,
        control.ReleaseJob: _released,
        control.RetryJob: _forgiven,
        control.ReprioritiseJob: _reprioritised,
        control.SetQueue: _queue_set,
        control.RemoveQueue: _queue_removed,
    }
)
