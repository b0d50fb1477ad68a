"""What accepted commands of operators and users mean in rows: about nodes, jobs and queues."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import and_, or_, select
from sqlalchemy.sql import ColumnElement

from gangline.events import control
from gangline.events import decisions as decided
from gangline.events.policy import Policy, Queue, with_queue, without_queue
from gangline.events.types import Event
from gangline.projections.node_states import mended
from gangline.projections.rows import Rows, clean, json
from gangline.projections.tables import commands, jobs, nodes, policies, queues

_Command = (
    control.SetQueue
    | control.RemoveQueue
    | control.CordonNode
    | control.UncordonNode
    | control.DrainNode
    | control.CheckNode
    | control.HoldJob
    | control.ReleaseJob
    | control.RetryJob
    | control.ReprioritiseJob
)
"""Those that are answered by CommandAccepted."""


def command_asked(rows: Rows, event: _Command) -> None:
    """Keep a command until its answer."""
    rows.add(
        commands,
        control_index=rows.index,
        command_id=None if event.meta.command_id is None else event.meta.command_id.hex(),
        actor=event.meta.actor,
        kind=type(event).__name__,
        subject=_subject(event),
        reason=getattr(event, "reason", None),
        detail=json(_detail(event)),
        at_us=rows.at_us,
    )


def _subject(event: _Command) -> str:
    match event:
        case control.SetQueue():
            return event.queue.path
        case control.RemoveQueue():
            return event.path
        case control.HoldJob() | control.ReleaseJob() | control.RetryJob() | control.ReprioritiseJob():
            return event.job_id
        case _:
            return event.node_id


def _detail(event: _Command) -> dict[str, object]:
    match event:
        case control.SetQueue():
            return {"queue": event.queue}
        case control.ReprioritiseJob():
            return {"priority": event.priority}
        case _:
            return {}


def accepted(rows: Rows, decision: decided.CommandAccepted) -> None:
    """Do what the command asks for."""
    asked = rows.first(select(commands).where(commands.c.control_index == decision.control_index))
    if asked is None:
        return
    rows.change(commands, commands.c.control_index == decision.control_index, accepted_index=rows.index)
    if apply := _ACCEPTED.get(asked.kind):
        apply(rows, asked)


def put_in_force(rows: Rows, policy: Policy, control_index: int) -> None:
    """Let a policy's queues be those that there are."""
    rows.remove(queues)
    for queue in policy.queues:
        rows.add(queues, path=queue.path, quotas=json(queue.quotas), policy_index=control_index)


def _node(rows: Rows, asked: Any, **values: object) -> None:  # noqa: ANN401 - a row
    rows.change(nodes, nodes.c.node_id == clean(asked.subject), **values)


def _cordoned(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    _node(rows, asked, cordoned=1, cordon_reason=asked.reason)


def _drained(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    _node(rows, asked, draining=1, cordon_reason=asked.reason)


def _uncordoned(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    _node(rows, asked, cordoned=0, draining=0, cordon_reason=None)
    mended(rows, asked.subject)


def _jobs(asked: Any) -> ColumnElement[bool]:  # noqa: ANN401 - a row
    """Return the condition for the jobs that a command names: one, or all of an array that have not ended."""
    named = or_(jobs.c.job_id == asked.subject, jobs.c.array_id == asked.subject)
    return and_(named, jobs.c.state.in_(("pending", "running", "stopping")))


def _note(rows: Rows, kind: str, asked: Any) -> None:  # noqa: ANN401 - a row
    detail: dict[str, object] = {"actor": asked.actor, "reason": asked.reason, **msgspec.json.decode(asked.detail)}
    rows.note(kind, asked.subject, None, None, **detail)


def _held(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    rows.change(jobs, _jobs(asked), held=1)
    _note(rows, "held", asked)


def _released(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    rows.change(jobs, _jobs(asked), held=0)
    _note(rows, "released", asked)


def _retried(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    rows.change(jobs, _jobs(asked), failures_in_row=0)
    _note(rows, "retried", asked)


def _reprioritised(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    rows.change(jobs, _jobs(asked), priority=msgspec.json.decode(asked.detail)["priority"])
    _note(rows, "reprioritised", asked)


def _queue_set(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    queue = msgspec.convert(msgspec.json.decode(asked.detail)["queue"], Queue)
    _change_policy(rows, asked, lambda policy: with_queue(policy, queue))


def _queue_removed(rows: Rows, asked: Any) -> None:  # noqa: ANN401 - a row
    _change_policy(rows, asked, lambda policy: without_queue(policy, asked.subject))


def _change_policy(rows: Rows, asked: Any, change: Callable[[Policy], Policy]) -> None:  # noqa: ANN401 - a row
    latest = select(policies.c.policy).where(policies.c.activated_index.is_not(None))
    row = rows.first(latest.order_by(policies.c.activated_index.desc(), policies.c.control_index.desc()).limit(1))
    if row is None:
        return
    policy = change(msgspec.json.decode(row.policy, type=Policy))
    rows.add(
        policies,
        control_index=asked.control_index,
        command_id=asked.command_id,
        policy=json(policy),
        activated_index=rows.index,
    )
    put_in_force(rows, policy, asked.control_index)


_ACCEPTED: Mapping[str, Callable[[Rows, Any], None]] = {
    "CordonNode": _cordoned,
    "DrainNode": _drained,
    "UncordonNode": _uncordoned,
    "HoldJob": _held,
    "ReleaseJob": _released,
    "RetryJob": _retried,
    "ReprioritiseJob": _reprioritised,
    "SetQueue": _queue_set,
    "RemoveQueue": _queue_removed,
}

ASKED: tuple[type[Event], ...] = (
    control.SetQueue,
    control.RemoveQueue,
    control.CordonNode,
    control.UncordonNode,
    control.DrainNode,
    control.CheckNode,
    control.HoldJob,
    control.ReleaseJob,
    control.RetryJob,
    control.ReprioritiseJob,
)
"""Commands that are kept until they are accepted or refused."""
