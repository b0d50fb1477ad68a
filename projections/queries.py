"""What readers ask of the tables. Rows are plain dictionaries; text that holds JSON comes decoded."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import and_, func, or_, select
from sqlalchemy.engine import Connection

from gangline.projections.tables import (
    attempts,
    checkpoints,
    jobs,
    nodes,
    placements,
    policies,
    queues,
    timeline,
)
from gangline.schemas.errors import NotFound, UsageError

ENDED = ("succeeded", "failed", "cancelled")
"""States that a job does not leave."""

STATES = ("pending", "running", "stopping", *ENDED)
"""What an admitted job can be in."""

HELD = "held"
"""Those of the pending ones that their users hold."""

MAX_ROWS = 1_000
"""How many jobs a list shows unless it is asked for another number; the newest ones."""

_JSON = ("gpu_types", "node_ids", "spec", "gpus_held", "exits", "detail")


def list_jobs(
    connection: Connection,
    *,
    states: Sequence[str] = (),
    queue: str | None = None,
    array: str | None = None,
    limit: int = MAX_ROWS,
) -> list[dict[str, Any]]:
    """Return the newest jobs in the order of their submission: arrays as one each, or the jobs of one array.

    `states` are of STATES, or HELD.
    """
    query = select(*(column for column in jobs.c if column is not jobs.c.spec)).where(jobs.c.state != "submitted")
    query = query.where(jobs.c.array_id.is_(None) if array is None else jobs.c.array_id == array)
    if states:
        in_state = jobs.c.state.in_(states)
        held = and_(jobs.c.state == "pending", jobs.c.held == 1)
        query = query.where(or_(in_state, held) if HELD in states else in_state)
    if queue is not None:
        query = query.where(jobs.c.queue == queue)
    query = query.order_by(jobs.c.submitted_index.desc(), jobs.c.array_index.desc()).limit(limit)
    return [_decoded(row) for row in reversed(connection.execute(query).mappings().all())]


def find_job(connection: Connection, job_id: str) -> dict[str, Any]:
    """Return a job by its id, or by as much of its beginning as no other shares.

    Raises NotFound, UsageError if several begin so.
    """
    query = select(jobs).where(jobs.c.job_id.startswith(job_id, autoescape=True), jobs.c.state != "submitted")
    if "." not in job_id:
        query = query.where(jobs.c.array_id.is_(None))
    found = connection.execute(query.order_by(jobs.c.job_id).limit(3)).mappings().all()
    if exact := [row for row in found if row["job_id"] == job_id]:
        found = exact
    if not found:
        raise NotFound(f"there is no job {job_id!r}: `gangline jobs` lists them")
    if len(found) > 1:
        raise UsageError(
            f"{job_id!r} begins the ids of several jobs ({', '.join(row['job_id'] for row in found)}, ...)"
        )
    return _decoded(found[0])


def attempts_of(connection: Connection, job_id: str) -> list[dict[str, Any]]:
    """Return the attempts of a job, each with its `placement`, the shares by first rank."""
    shares: dict[int, list[dict[str, Any]]] = {}
    of_job = select(placements).where(placements.c.job_id == job_id)
    for row in connection.execute(of_job.order_by(placements.c.attempt, placements.c.first_rank)).mappings():
        shares.setdefault(row["attempt"], []).append(_decoded(row, also=("gpus",)))
    query = select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.attempt)
    return [
        {**_decoded(row), "placement": shares.get(row["attempt"], [])} for row in connection.execute(query).mappings()
    ]


def checkpoints_of(connection: Connection, job_id: str) -> list[dict[str, Any]]:
    """Return the checkpoints of a job by attempt and step."""
    query = select(checkpoints).where(checkpoints.c.job_id == job_id)
    ordered = query.order_by(checkpoints.c.attempt, checkpoints.c.step, checkpoints.c.manifest_sha256)
    return [dict(row) for row in connection.execute(ordered).mappings()]


def timeline_of(connection: Connection, job_id: str) -> list[dict[str, Any]]:
    """Return what happened to a job, in order."""
    query = select(timeline).where(timeline.c.job_id == job_id)
    ordered = query.order_by(timeline.c.control_index, timeline.c.ordinal)
    return [_decoded(row) for row in connection.execute(ordered).mappings()]


def list_nodes(connection: Connection) -> list[dict[str, Any]]:
    """Return the nodes in natural order, each with its `state`, and with `gpu_milli_used` of `shares` of attempts."""
    used = (
        select(
            placements.c.node_id,
            func.sum(placements.c.gpu_count * placements.c.gpu_milli).label("used"),
            func.count().label("shares"),
        )
        .where(placements.c.gone_index.is_(None))
        .group_by(placements.c.node_id)
        .subquery()
    )
    counts = (func.coalesce(used.c.used, 0).label("gpu_milli_used"), func.coalesce(used.c.shares, 0).label("shares"))
    query = select(nodes, *counts).outerjoin_from(nodes, used, nodes.c.node_id == used.c.node_id)
    found = []
    for row in connection.execute(query).mappings():
        node = _decoded(row, also=("gpus", "broken_gpus"))
        node |= {"gpu_milli_used": int(row["gpu_milli_used"]), "shares": int(row["shares"])}
        found.append(node | {"state": _state_of(node)})
    return sorted(found, key=lambda row: _natural(row["node_id"]))


def _state_of(node: Mapping[str, Any]) -> str:
    """Return why nothing starts on a node, the weightiest reason first; `up` where there is none."""
    if node["lost"]:
        return "lost"
    if node["quarantined"]:
        return "quarantined"
    if node["draining"]:
        return "draining" if node["shares"] else "drained"
    return "cordoned" if node["cordoned"] else "up"


def _natural(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key by which node-2 comes before node-10."""
    parts = re.split("([0-9]+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name


def jobs_on(connection: Connection, node_id: str) -> list[dict[str, Any]]:
    """Return the id and state of the jobs of which something is on a node."""
    here = select(placements.c.job_id).where(placements.c.node_id == node_id, placements.c.gone_index.is_(None))
    query = select(jobs.c.job_id, jobs.c.state).where(jobs.c.job_id.in_(here)).order_by(jobs.c.submitted_index)
    return [dict(row) for row in connection.execute(query).mappings()]


def succeeded(connection: Connection, job_ids: Sequence[str]) -> list[str]:
    """Return which of these jobs have succeeded."""
    query = select(jobs.c.job_id).where(jobs.c.job_id.in_(job_ids), jobs.c.state == "succeeded")
    return list(connection.execute(query.order_by(jobs.c.job_id)).scalars())


def policy_in_force(connection: Connection) -> dict[str, Any] | None:
    """Return the policy that is decided by, as it was stored, with its indexes; None before there is one."""
    query = select(policies).where(policies.c.activated_index.is_not(None))
    latest = query.order_by(policies.c.activated_index.desc(), policies.c.control_index.desc()).limit(1)
    row = connection.execute(latest).mappings().first()
    return None if row is None else dict(row)


def list_queues(connection: Connection) -> list[dict[str, Any]]:
    """Return the queues with the number of their jobs that wait and run, and the GPUs of those that run."""
    counted = select(
        jobs.c.queue,
        jobs.c.state,
        func.count(),
        func.sum(func.coalesce(jobs.c.gpus_now, jobs.c.gpus) * jobs.c.gpu_milli),
    )
    counts: dict[str, dict[str, int]] = {}
    counted = counted.where(jobs.c.array_size.is_(None)).group_by(jobs.c.queue, jobs.c.state)
    for queue, state, count, milli in connection.execute(counted):
        row = counts.setdefault(queue, {"pending": 0, "running": 0, "gpu_milli_used": 0})
        if state == "pending":
            row["pending"] += count
        elif state in {"running", "stopping"}:
            row["running"] += count
            row["gpu_milli_used"] += int(milli)
    nothing = {"pending": 0, "running": 0, "gpu_milli_used": 0}
    paths = connection.execute(select(queues.c.path).order_by(queues.c.path)).scalars()
    return [{"queue": path, **counts.get(path, nothing)} for path in paths]


def _decoded(row: Mapping[Any, Any], also: Sequence[str] = ()) -> dict[str, Any]:
    return {
        name: msgspec.json.decode(value) if value is not None and name in (*_JSON, *also) else value
        for name, value in row.items()
    }
