"""`evolve(state, event) -> state`: control records and rounds, each through the reducer of its family."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gangline.events import control, decisions
from gangline.events.types import Decision, Event
from gangline.scheduler.errors import Halted, Inapplicable
from gangline.scheduler.journal import cut
from gangline.scheduler.reducers import (
    checkpoints,
    clock,
    commands,
    faults,
    gangs,
    jobs,
    nodes,
    reports,
    room,
    storage,
    worth,
)
from gangline.scheduler.state import State


def _log_created(state: State, event: control.LogCreated) -> State:
    if state.log_id:
        return state
    return replace(state, log_id=event.log_id)


def _quarantined(state: State, decision: decisions.InputQuarantined) -> State:
    if decision.control_index not in state.failed_inputs:
        return state
    return replace(state, failed_inputs=state.failed_inputs.delete(decision.control_index))


_CONTROL: Mapping[type, Callable[[State, Any], State]] = MappingProxyType(
    {
        control.LogCreated: _log_created,
        control.SubmitJob: commands.command_received,
        control.CancelJob: commands.command_received,
        control.ActivatePolicy: commands.command_received,
        control.SetQueue: commands.command_received,
        control.RemoveQueue: commands.command_received,
        control.CordonNode: commands.command_received,
        control.UncordonNode: commands.command_received,
        control.DrainNode: commands.command_received,
        control.CheckNode: commands.command_received,
        control.HoldJob: commands.command_received,
        control.ReleaseJob: commands.command_received,
        control.RetryJob: commands.command_received,
        control.ReprioritiseJob: commands.command_received,
        control.NodeRegistered: nodes.node_registered,
        control.NodeLost: faults.node_lost,
        control.NodeRecovered: faults.node_recovered,
        control.NodeFaulted: faults.node_faulted,
        control.NodeChecked: faults.node_checked,
        control.StoragePressureChanged: storage.storage_pressure_changed,
        control.RanksStarted: gangs.ranks_started,
        control.RanksExited: gangs.ranks_exited,
        control.LaunchFailed: gangs.launch_failed,
        control.CheckpointUploadStarted: checkpoints.checkpoint_upload_started,
        control.CheckpointUploaded: checkpoints.checkpoint_uploaded,
        control.CheckpointRejected: checkpoints.checkpoint_rejected,
        control.JobIdled: reports.job_idled,
        control.RankSlow: reports.rank_slow,
        control.TickerTookOver: clock.ticker_took_over,
        control.ClockTicked: clock.clock_ticked,
    }
)

_DECISIONS: Mapping[type, Callable[[State, Any], State]] = MappingProxyType(
    {
        decisions.JobAdmitted: commands.answered,
        decisions.JobRejected: commands.answered,
        decisions.CancelAccepted: commands.answered,
        decisions.PolicyActivated: commands.answered,
        decisions.PolicyRefused: commands.answered,
        decisions.CommandAccepted: commands.answered,
        decisions.CommandRefused: commands.answered,
        decisions.CommandExpired: commands.answered,
        decisions.AnswerRepeated: commands.answered,
        decisions.NodeQuarantined: faults.node_quarantined,
        decisions.NodeReleased: faults.node_released,
        decisions.NodeCheckOrdered: faults.node_check_ordered,
        decisions.GangBound: jobs.gang_bound,
        decisions.AttemptStopOrdered: jobs.attempt_stop_ordered,
        decisions.PreemptionOrdered: jobs.preemption_ordered,
        decisions.AttemptPreempted: jobs.attempt_preempted,
        decisions.RoomHeld: room.room_held,
        decisions.RoomReleased: room.room_released,
        decisions.NodesReserved: room.nodes_reserved,
        decisions.ReservationDropped: room.reservation_dropped,
        decisions.RuntimeWarned: reports.runtime_warned,
        decisions.AttemptEnded: jobs.attempt_ended,
        decisions.JobRequeued: jobs.job_requeued,
        decisions.JobEnded: jobs.job_ended,
        decisions.CheckpointCommitted: checkpoints.checkpoint_committed,
        decisions.CheckpointRefused: checkpoints.checkpoint_refused,
        decisions.WorthLearnt: worth.worth_learnt,
        decisions.InputQuarantined: _quarantined,
    }
)


def evolve(state: State, index: int, event: Event) -> State:
    """Return the state after the control record `index`, which holds `event`.

    Raises Inapplicable if the event says what cannot be; see `skip`.
    """
    reducer = _CONTROL.get(type(event))
    if reducer is None:
        raise Inapplicable(f"{type(event).__name__} does not belong on control")
    awaiting = state.awaiting_round or type(event) is not control.ClockTicked
    state = replace(state, control_index=index, last_event_id=event.meta.event_id, awaiting_round=awaiting)
    return reducer(state, event)


def fail(state: State, index: int, reason: str) -> State:
    """Return the state after a control record that could not be decoded or applied; the next round quarantines it."""
    failed = state.failed_inputs.set(index, reason)
    return replace(state, control_index=index, last_event_id=b"", awaiting_round=True, failed_inputs=failed)


def skip(state: State, index: int) -> State:
    """Return the state after a control record that the round on the log quarantines."""
    return replace(state, control_index=index, last_event_id=b"", awaiting_round=True)


def apply_decision(state: State, decision: Decision) -> State:
    """Return the state after one decision of a round."""
    return _DECISIONS[type(decision)](state, decision)


def evolve_round(state: State, record: decisions.RoundDecided, decided: Sequence[Decision]) -> State:
    """Return the state after a round, whose decisions are `decided`.

    Raises Halted if its tick is not the record that was folded last.
    """
    if (state.control_index, state.tick_index, state.tick_event_id) != (
        record.tick_index,
        record.tick_index,
        record.tick_event_id,
    ):
        raise Halted(
            f"the round of tick {record.tick_index} does not belong to the record at that index of control: "
            "the log was replaced, or the two topics are not of one log"
        )
    for decision in decided:
        state = apply_decision(state, decision)
    return finish_round(state, more=record.more)


def finish_round(state: State, *, more: bool) -> State:
    """Return the state between two rounds; what a full round left undone stays."""
    if more:
        return replace(state, awaiting_round=False, more=True, changed=cut(state.tick_event_id))
    return replace(
        state,
        awaiting_round=False,
        more=False,
        touched=_EMPTY,
        troubled=_EMPTY,
        placement_due=state.policy_is_new or state.reopened,
        reopened=False,
        policy_is_new=False,
        changed=cut(state.tick_event_id),
    )


_EMPTY = State().touched
