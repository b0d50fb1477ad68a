"""What the decisions of a round mean in rows."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import and_, select
from sqlalchemy.sql import ColumnElement

from gangline.events import decisions as decided
from gangline.events.policy import Policy
from gangline.events.types import Decision
from gangline.projections import node_states
from gangline.projections.commands import accepted, put_in_force
from gangline.projections.rows import Rows, checkpoint_is, json
from gangline.projections.tables import answers, attempts, checkpoints, jobs, placements, policies, rooms

_OfAttempt = decided.AttemptStopOrdered | decided.PreemptionOrdered | decided.AttemptPreempted | decided.AttemptEnded


def answered(rows: Rows, answer: decided.Answer) -> None:
    """Keep an answer, and drop what it turned away."""
    fields = {name: getattr(answer, name, None) for name in ("job_id", "key", "value", "limit", "message")}
    rows.add(
        answers,
        control_index=answer.control_index,
        command_id=answer.command_id.hex(),
        kind=type(answer).__name__,
        tick_index=rows.index,
        at_us=rows.at_us,
        **fields,
    )
    if not isinstance(answer, decided.JobAdmitted):
        # A submission that is not admitted is no job; if one was before under this command, that one stands.
        gone = and_(jobs.c.command_id == answer.command_id.hex(), jobs.c.state == "submitted")
        rows.remove(jobs, gone)


def job_admitted(rows: Rows, decision: decided.JobAdmitted) -> None:
    """Let the job wait."""
    rows.change(
        jobs,
        jobs.c.job_id == decision.job_id,
        state="pending",
        admitted_index=rows.index,
        admitted_at_us=rows.at_us,
    )
    rows.note("admitted", decision.job_id)
    array = rows.first(select(jobs).where(jobs.c.job_id == decision.job_id, jobs.c.array_size.is_not(None)))
    if array is not None:
        common = {
            **dict(zip(jobs.c.keys(), array, strict=True)),
            "array_id": array.job_id,
            "array_size": None,
            "command_id": None,
        }
        rows.add_new(
            jobs,
            [
                {**common, "job_id": f"{array.job_id}.{index}", "array_index": index}
                for index in range(array.array_size)
            ],
        )


def policy_activated(rows: Rows, decision: decided.PolicyActivated) -> None:
    """Put the policy in force."""
    asked = policies.c.control_index == decision.control_index
    row = rows.first(select(policies.c.policy).where(asked))
    if row is None:
        return
    rows.change(policies, asked, activated_index=rows.index)
    put_in_force(rows, msgspec.json.decode(row.policy, type=Policy), decision.control_index)


def gang_bound(rows: Rows, decision: decided.GangBound) -> None:
    """Add an attempt and its placement."""
    resume_step = decision.resume[0].step if decision.resume else None
    rows.add(
        attempts,
        job_id=decision.job_id,
        attempt=decision.attempt,
        state="bound",
        world_size=decision.world_size,
        master_address=decision.master_address,
        master_port=decision.master_port,
        resume_step=resume_step,
        bound_index=rows.index,
        bound_at_us=rows.at_us,
    )
    for share in decision.shares:
        rows.add(
            placements,
            job_id=decision.job_id,
            attempt=decision.attempt,
            first_rank=share.first_rank,
            rank_count=len(share.ranks),
            role=share.role,
            node_id=share.node_id,
            address=share.address,
            gpus=json(share.gpus),
            gpu_count=len(share.gpus),
            gpu_milli=share.gpu_milli,
            cpu_milli=share.cpu_milli,
            memory_bytes=share.memory_bytes,
        )
    gpus_now = sum(len(share.gpus) for share in decision.shares if not share.role)
    running = {"state": "running", "attempts": decision.attempt, "gpus_now": gpus_now}
    rows.change(jobs, jobs.c.job_id == decision.job_id, **running)
    if decision.array_index is not None:
        array_id = decision.job_id.rpartition(".")[0]
        rows.change(jobs, and_(jobs.c.job_id == array_id, jobs.c.state == "pending"), state="running")
    rows.remove(rooms, rooms.c.job_id == decision.job_id)
    placement: dict[str, list[int]] = {}
    for share in decision.shares:
        placement.setdefault(share.node_id, []).extend(share.gpus)
    rows.note("bound", decision.job_id, decision.attempt, placement=placement, resume_step=resume_step)


def attempt_stop_ordered(rows: Rows, decision: decided.AttemptStopOrdered) -> None:
    """Mark the attempt and its job as stopping."""
    stop = {"stop_reason": decision.reason, "stop_index": rows.index, "stop_at_us": rows.at_us}
    rows.change(attempts, _attempt(decision), state="stopping", **stop)
    rows.change(jobs, jobs.c.job_id == decision.job_id, state="stopping")
    rows.note("stop ordered", decision.job_id, decision.attempt, reason=decision.reason, grace_us=decision.grace_us)


def preemption_ordered(rows: Rows, decision: decided.PreemptionOrdered) -> None:
    """Mark the attempt and its job as stopping, and count it."""
    stop = {"stop_reason": decision.reason, "stop_index": rows.index, "stop_at_us": rows.at_us}
    rows.change(attempts, _attempt(decision), state="stopping", stop_claimant=decision.claimant, **stop)
    where = jobs.c.job_id == decision.job_id
    counted: dict[str, object] = {}
    if decision.reason not in {"held", "retried"}:
        column = jobs.c.moves if decision.reason == "move" else jobs.c.preemptions
        counted = {column.name: column + 1}
    rows.change(jobs, where, state="stopping", **counted)
    detail: dict[str, Any] = {"reason": decision.reason, "claimant": decision.claimant, "grace_us": decision.grace_us}
    rows.note("preemption ordered", decision.job_id, decision.attempt, None, **detail)


def attempt_preempted(rows: Rows, decision: decided.AttemptPreempted) -> None:
    """Close the attempt, which has not failed."""
    ended = {"ended_index": rows.index, "ended_at_us": rows.at_us}
    rows.change(attempts, _attempt(decision), state="preempted", cause=decision.cause, **ended)
    rows.note("preempted", decision.job_id, decision.attempt, reason=decision.reason, cause=decision.cause)


def room_held(rows: Rows, decision: decided.RoomHeld) -> None:
    """Set shares aside for a job."""
    _forget_room(rows, decision.job_id, "held")
    node_ids = tuple(share.node_id for share in decision.shares)
    rows.add(
        rooms,
        job_id=decision.job_id,
        kind="held",
        reason=decision.reason,
        node_ids=json(node_ids),
        gpu_count=sum(len(share.gpus) for share in decision.shares),
        since_index=rows.index,
        since_at_us=rows.at_us,
        until_us=decision.until_us,
    )
    rows.note("room held", decision.job_id, reason=decision.reason, node_ids=node_ids, until_us=decision.until_us)


def room_released(rows: Rows, decision: decided.RoomReleased) -> None:
    """Let others have the shares."""
    _forget_room(rows, decision.job_id, "held")
    rows.note("room released", decision.job_id, cause=decision.cause)


def nodes_reserved(rows: Rows, decision: decided.NodesReserved) -> None:
    """Set nodes aside for a gang, in place of those that it may have had."""
    _forget_room(rows, decision.job_id, "reserved")
    rows.add(
        rooms,
        job_id=decision.job_id,
        kind="reserved",
        node_ids=json(decision.node_ids),
        since_index=rows.index,
        since_at_us=rows.at_us,
        until_us=decision.free_at_us,
    )
    rows.note("nodes reserved", decision.job_id, node_ids=decision.node_ids, free_at_us=decision.free_at_us)


def reservation_dropped(rows: Rows, decision: decided.ReservationDropped) -> None:
    """Let others have the nodes."""
    _forget_room(rows, decision.job_id, "reserved")
    rows.note("reservation dropped", decision.job_id, cause=decision.cause)


def _forget_room(rows: Rows, job_id: str, kind: str) -> None:
    rows.remove(rooms, rooms.c.job_id == job_id, rooms.c.kind == kind)


def attempt_ended(rows: Rows, decision: decided.AttemptEnded) -> None:
    """Close the attempt."""
    ended = {"ended_index": rows.index, "ended_at_us": rows.at_us}
    rows.change(attempts, _attempt(decision), state="ended", outcome=decision.outcome, cause=decision.cause, **ended)
    rows.note("attempt ended", decision.job_id, decision.attempt, outcome=decision.outcome, cause=decision.cause)


def job_requeued(rows: Rows, decision: decided.JobRequeued) -> None:
    """Let the job wait again."""
    job = {"state": "pending", "gpus_now": None, "failures_in_row": decision.failures_in_row, "cause": decision.cause}
    rows.change(jobs, jobs.c.job_id == decision.job_id, **job)
    failures = decision.failures_in_row
    rows.note("requeued", decision.job_id, decision.attempt, failures_in_row=failures, cause=decision.cause)


def job_ended(rows: Rows, decision: decided.JobEnded) -> None:
    """Close the job."""
    ended = {"ended_index": rows.index, "ended_at_us": rows.at_us}
    rows.change(
        jobs, jobs.c.job_id == decision.job_id, state=decision.outcome, cause=decision.cause, gpus_now=None, **ended
    )
    rows.remove(rooms, rooms.c.job_id == decision.job_id)
    rows.note("ended", decision.job_id, outcome=decision.outcome, cause=decision.cause)


def checkpoint_committed(rows: Rows, decision: decided.CheckpointCommitted) -> None:
    """Let the checkpoint exist."""
    _judged(rows, decision, "committed", None)


def checkpoint_refused(rows: Rows, decision: decided.CheckpointRefused) -> None:
    """Mark a checkpoint that will never be restored."""
    _judged(rows, decision, "refused", decision.reason)


def _judged(
    rows: Rows, decision: decided.CheckpointCommitted | decided.CheckpointRefused, state: str, reason: str | None
) -> None:
    where = checkpoint_is(decision.job_id, decision.checkpoint)
    at = {"decided_index": rows.index, "decided_at_us": rows.at_us}
    rows.change(checkpoints, where, state=state, reason=reason, **at)
    step = decision.checkpoint.step
    rows.note(f"checkpoint {state}", decision.job_id, decision.attempt, step=step, reason=reason)


def _attempt(decision: _OfAttempt) -> ColumnElement[bool]:
    return and_(attempts.c.job_id == decision.job_id, attempts.c.attempt == decision.attempt)


WRITES: Mapping[type[Decision], Callable[[Rows, Any], None]] = {
    decided.JobAdmitted: job_admitted,
    decided.PolicyActivated: policy_activated,
    decided.CommandAccepted: accepted,
    decided.NodeCheckOrdered: node_states.node_check_ordered,
    decided.NodeQuarantined: node_states.node_quarantined,
    decided.NodeReleased: node_states.node_released,
    decided.GangBound: gang_bound,
    decided.AttemptStopOrdered: attempt_stop_ordered,
    decided.PreemptionOrdered: preemption_ordered,
    decided.AttemptPreempted: attempt_preempted,
    decided.RoomHeld: room_held,
    decided.RoomReleased: room_released,
    decided.NodesReserved: nodes_reserved,
    decided.ReservationDropped: reservation_dropped,
    decided.AttemptEnded: attempt_ended,
    decided.JobRequeued: job_requeued,
    decided.JobEnded: job_ended,
    decided.CheckpointCommitted: checkpoint_committed,
    decided.CheckpointRefused: checkpoint_refused,
}
"""Every decision that leaves rows beside its answer, by type."""
