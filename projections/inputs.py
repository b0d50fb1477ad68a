"""What the inputs of a round mean in rows. A fact about what is not known, or known already, changes nothing."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import and_, select
from sqlalchemy.sql import ColumnElement

from gangline.events import control, ids
from gangline.events.types import Event
from gangline.projections import commands, node_states
from gangline.projections.rows import Rows, checkpoint_is, clean, json
from gangline.projections.tables import attempts, checkpoints, jobs, placements, policies


def submitted(rows: Rows, event: control.SubmitJob) -> None:
    """Keep a submission until its answer."""
    if event.meta.command_id is None:
        return
    job_id, spec = ids.job_id(rows.log_id, event.meta.command_id), event.spec
    new = rows.add(
        jobs,
        job_id=job_id,
        command_id=event.meta.command_id.hex(),
        actor=event.meta.actor,
        name=spec.name,
        queue=spec.queue,
        state="submitted",
        gpus=spec.gpus,
        gpus_min=None if spec.elastic is None else spec.elastic.min_gpus,
        gpus_max=None if spec.elastic is None else spec.elastic.max_gpus,
        gpu_milli=spec.gpu_milli,
        nodes=spec.nodes,
        gpu_types=json(spec.gpu_types),
        priority=spec.priority,
        spec=json(spec),
        attempts=0,
        failures_in_row=0,
        preemptions=0,
        moves=0,
        held=int(spec.held),
        array_size=spec.array,
        submitted_index=rows.index,
        submitted_at_us=rows.at_us,
    )
    if new:
        rows.note("submitted", job_id, actor=event.meta.actor)


def cancel_asked(rows: Rows, event: control.CancelJob) -> None:
    """Note who asked, and why."""
    if rows.known(jobs, jobs.c.job_id == event.job_id):
        rows.note("cancel asked", event.job_id, actor=event.meta.actor, reason=event.reason)


def policy_asked(rows: Rows, event: control.ActivatePolicy) -> None:
    """Keep a policy until its answer."""
    command_id = None if event.meta.command_id is None else event.meta.command_id.hex()
    rows.add(policies, control_index=rows.index, command_id=command_id, policy=json(event.policy))


def ranks_started(rows: Rows, event: control.RanksStarted) -> None:
    """Set when and where a share began, once."""
    share = and_(_share(event), placements.c.started_index.is_(None))
    if rows.change(placements, share, started_index=rows.index, started_at_us=rows.at_us, run_dir=event.run_dir):
        rows.note("started", event.job_id, event.attempt, event.node_id, run_dir=event.run_dir)


def ranks_exited(rows: Rows, event: control.RanksExited) -> None:
    """Add exit codes to the shares whose ranks they are, the first of a rank standing; note the shares gone."""
    columns = (placements.c.exits, placements.c.first_rank, placements.c.rank_count)
    held = select(*columns).where(_share(event), placements.c.gone_index.is_(None)).order_by(placements.c.first_rank)
    shares = rows.all(held)
    new: dict[str, int] = {}
    for share in shares:
        ranks = range(share.first_rank, share.first_rank + share.rank_count)
        before: dict[str, int] = msgspec.json.decode(share.exits or "{}")
        after = {str(one.rank): one.exit_code for one in event.exits if one.rank in ranks} | before
        values: dict[str, Any] = {"exits": json(after)} if after else {}
        if event.gone:
            values |= {"gone_index": rows.index, "gone_at_us": rows.at_us}
        if values:
            rows.change(placements, and_(_share(event), placements.c.first_rank == share.first_rank), **values)
        new |= {rank: code for rank, code in after.items() if rank not in before}
    if new or (shares and event.gone):
        rows.note("exited", event.job_id, event.attempt, event.node_id, exits=new, gone=event.gone)


def launch_failed(rows: Rows, event: control.LaunchFailed) -> None:
    """Note the share gone, with the reason."""
    share = and_(_share(event), placements.c.gone_index.is_(None))
    gone = {"failure": event.reason, "gone_index": rows.index, "gone_at_us": rows.at_us}
    if rows.change(placements, share, **gone):
        rows.note("launch failed", event.job_id, event.attempt, event.node_id, reason=event.reason)


def checkpoint_uploaded(rows: Rows, event: control.CheckpointUploaded) -> None:
    """Keep a checkpoint of a known attempt."""
    if not rows.known(attempts, attempts.c.job_id == event.job_id, attempts.c.attempt == event.attempt):
        return
    rows.add(
        checkpoints,
        job_id=event.job_id,
        step=event.checkpoint.step,
        manifest_sha256=event.checkpoint.manifest_sha256,
        attempt=event.attempt,
        uri=event.checkpoint.uri,
        size_bytes=event.size_bytes,
        state="uploaded",
        uploaded_index=rows.index,
        uploaded_at_us=rows.at_us,
    )


def checkpoint_rejected(rows: Rows, event: control.CheckpointRejected) -> None:
    """Mark a checkpoint that did not verify."""
    if rows.change(checkpoints, checkpoint_is(event.job_id, event.checkpoint), state="rejected", reason=event.reason):
        step = event.checkpoint.step
        rows.note("checkpoint rejected", event.job_id, event.attempt, step=step, reason=event.reason)


def _share(event: control.RanksStarted | control.RanksExited | control.LaunchFailed) -> ColumnElement[bool]:
    return and_(
        placements.c.job_id == clean(event.job_id),
        placements.c.attempt == event.attempt,
        placements.c.node_id == clean(event.node_id),
    )


WRITES: Mapping[type[Event], Callable[[Rows, Any], None]] = {
    control.SubmitJob: submitted,
    control.CancelJob: cancel_asked,
    control.ActivatePolicy: policy_asked,
    control.RanksStarted: ranks_started,
    control.RanksExited: ranks_exited,
    control.LaunchFailed: launch_failed,
    control.CheckpointUploaded: checkpoint_uploaded,
    control.CheckpointRejected: checkpoint_rejected,
    **node_states.INPUTS,
    **dict.fromkeys(commands.ASKED, commands.command_asked),
}
"""Every input that leaves rows, by type."""
