"""What befalls nodes, in rows: registered, lost and heard of, broken, examined, quarantined and released."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import and_, select, tuple_
from sqlalchemy.sql import ColumnElement

from gangline.events import control
from gangline.events import decisions as decided
from gangline.events.types import Event
from gangline.projections.rows import Rows, clean, json
from gangline.projections.tables import attempts, nodes, placements


def node_registered(rows: Rows, event: control.NodeRegistered) -> None:
    """Take over what the node has; what was decided about it, and who holds it back, stands."""
    old = rows.first(select(nodes).where(_is(event.node_id)))
    same_boot = old is not None and old.boot_id == event.boot_id
    said: dict[str, object] = {
        "boot_id": event.boot_id,
        "agent_id": event.agent_id,
        "address": event.address,
        "pod": event.pod,
        "gpu_type": event.gpu_type,
        "gpu_count": len(event.gpus),
        "gpus": json(event.gpus),
        "cpu_milli": event.cpu_milli,
        "memory_bytes": event.memory_bytes,
        "registered_index": rows.index,
        "registered_at_us": rows.at_us,
        # The agent that was lost has said this before: it is a repeat, and no sign of life.
        "lost": int(old is not None and bool(old.lost) and old.agent_id == event.agent_id),
    }
    if not same_boot:
        said["broken_gpus"] = json(())
    if old is not None:
        rows.change(nodes, _is(event.node_id), **said)
    else:
        rows.add(nodes, node_id=event.node_id, cordoned=0, draining=0, quarantined=0, **said)
    if event.attempts_listed:
        _free_unlisted(rows, event)


def _free_unlisted(rows: Rows, event: control.NodeRegistered) -> None:
    """Note the shares of ended attempts gone that the agent does not list."""
    listed = [(one.job_id, one.attempt) for one in event.attempts]
    key = tuple_(placements.c.job_id, placements.c.attempt)
    ended = select(attempts.c.job_id, attempts.c.attempt).where(attempts.c.ended_index.is_not(None))
    here = and_(placements.c.node_id == clean(event.node_id), placements.c.gone_index.is_(None), key.in_(ended))
    gone = and_(here, key.not_in(listed)) if listed else here
    rows.change(placements, gone, gone_index=rows.index, gone_at_us=rows.at_us)


def node_lost(rows: Rows, event: control.NodeLost) -> None:
    """Mark a node of which nothing is heard."""
    rows.change(nodes, and_(_is(event.node_id), nodes.c.boot_id == clean(event.boot_id)), lost=1)


def node_recovered(rows: Rows, event: control.NodeRecovered) -> None:
    """Mark it as heard of again."""
    rows.change(nodes, and_(_is(event.node_id), nodes.c.boot_id == clean(event.boot_id)), lost=0)


def node_faulted(rows: Rows, event: control.NodeFaulted) -> None:
    """Keep which of its GPUs are broken; a node that is broken as a whole is quarantined by a decision."""
    row = rows.first(select(nodes.c.broken_gpus, nodes.c.gpus).where(_is(event.node_id)))
    if row is None or event.gpu not in [gpu["index"] for gpu in msgspec.json.decode(row.gpus)]:
        return
    broken = sorted({*msgspec.json.decode(row.broken_gpus), event.gpu})
    rows.change(nodes, _is(event.node_id), broken_gpus=json(broken))


def node_checked(rows: Rows, event: control.NodeChecked) -> None:
    """Keep what the check found that was asked for last, the first report of it standing."""
    asked = and_(_is(event.node_id), nodes.c.check_index == event.check_index, nodes.c.healthy.is_(None))
    rows.change(nodes, asked, healthy=int(event.healthy), report=event.report, checked_at_us=rows.at_us)


def node_check_ordered(rows: Rows, decision: decided.NodeCheckOrdered) -> None:
    """Wait for a report."""
    nothing = {"healthy": None, "report": None, "checked_at_us": None}
    new = and_(_is(decision.node_id), nodes.c.check_index.is_distinct_from(decision.check_index))
    rows.change(nodes, new, check_index=decision.check_index, **nothing)


def node_quarantined(rows: Rows, decision: decided.NodeQuarantined) -> None:
    """Mark it, with the reason."""
    quarantine = {"quarantined": 1, "quarantined_until_us": decision.until_us, "quarantine_reason": decision.reason}
    rows.change(nodes, _is(decision.node_id), **quarantine)


def node_released(rows: Rows, decision: decided.NodeReleased) -> None:
    """Mark it as well."""
    mended(rows, decision.node_id)


def mended(rows: Rows, node_id: str) -> None:
    """Forget what was held against a node."""
    well = {"quarantined": 0, "quarantined_until_us": None, "quarantine_reason": None, "broken_gpus": json(())}
    rows.change(nodes, _is(node_id), **well)


def _is(node_id: str) -> ColumnElement[bool]:
    return nodes.c.node_id == clean(node_id)


INPUTS: Mapping[type[Event], Callable[[Rows, Any], None]] = {
    control.NodeRegistered: node_registered,
    control.NodeLost: node_lost,
    control.NodeRecovered: node_recovered,
    control.NodeFaulted: node_faulted,
    control.NodeChecked: node_checked,
}
