"""`gangline jobs` and `nodes`: lists out of the tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.output import print_json, print_table
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption, seconds
from gangline.schemas.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

AFTER_WAIT_S = 10.0
"""How long --after waits unless it is told; rounds follow each other within 5 s even in an idle cluster."""

AfterOption = Annotated[
    int | None, typer.Option("--after", metavar="INDEX", help="Wait until this index of the log is decided and shown.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds that --after waits.", callback=seconds)]


@contextmanager
def tables(place: Place, after: int | None, timeout_s: float = AFTER_WAIT_S) -> "Iterator[Connection]":
    """Give a connection that sees one state of the tables, which covers `after`. Raises TimedOut, NotFound."""
    from gangline.projections.database import snapshot

    engine = place.open_tables()
    if after is not None:
        from gangline.projections.waiting import wait_covered

        wait_covered(engine, place.open_log, after, timeout_s=timeout_s)
    with snapshot(engine) as connection:
        from gangline.projections.positions import require

        require(connection)
        yield connection


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("jobs")(jobs)
    app.command("nodes")(nodes)


def jobs(
    *,
    state: Annotated[list[str] | None, typer.Option(help="Only jobs in this state; may be repeated.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only jobs of this queue.")] = None,
    array: Annotated[str | None, typer.Option(help="The jobs of this array, which is one job else.")] = None,
    limit: Annotated[int, typer.Option(help="The newest so many.", min=1)] = 1_000,
    after: AfterOption = None,
    timeout: TimeoutOption = AFTER_WAIT_S,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """List jobs, the oldest first.

    Example: gangline jobs --state running --state pending
    """
    from gangline.cli.units import show_duration, show_size, show_time
    from gangline.projections.queries import HELD, STATES, find_job, list_jobs

    known = (HELD, *STATES)
    if unknown := [one for one in state or () if one not in known]:
        raise UsageError(f"--state: there is no state {unknown[0]!r}: name one of {', '.join(known)}")
    with tables(Place(home, log=log, sql=sql), after, timeout) as connection:
        array_id = None if array is None else find_job(connection, array)["job_id"]
        rows = list_jobs(connection, states=state or (), queue=queue, array=array_id, limit=limit)
    if json:
        print_json(rows)
        return
    shown = [
        (
            row["job_id"],
            row["name"],
            row["queue"],
            "held" if row["held"] and row["state"] == "pending" else row["state"],
            show_size(row),
            f"{row['array_size']} jobs" if row["array_size"] else row["attempts"],
            row["preemptions"] + row["moves"] or "",
            show_time(row["submitted_at_us"])[:19],
            show_duration(row["ended_at_us"] - row["submitted_at_us"]) if row["ended_at_us"] else None,
            "" if row["state"] in {"running", "succeeded"} else row["cause"],
        )
        for row in rows
    ]
    columns = ("job", "name", "queue", "state", "gpus", "attempts", "gave way", "submitted", "took", "cause")
    print_table(columns, shown)


def nodes(
    *,
    after: AfterOption = None,
    timeout: TimeoutOption = AFTER_WAIT_S,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """List nodes, what of them is in use, and why nothing starts on one.

    Example: gangline nodes --json
    """
    from gangline.cli.units import show_bytes
    from gangline.events.amounts import milli_shown
    from gangline.projections.queries import list_nodes

    with tables(Place(home, log=log, sql=sql), after, timeout) as connection:
        rows = list_nodes(connection)
    if json:
        print_json(rows)
        return
    columns = ("node", "state", "pod", "gpu type", "gpus", "used", "cpus", "memory", "address", "why")
    shown = [
        (
            row["node_id"],
            row["state"],
            row["pod"],
            row["gpu_type"],
            row["gpu_count"],
            milli_shown(row["gpu_milli_used"]),
            milli_shown(row["cpu_milli"]),
            show_bytes(row["memory_bytes"]),
            row["address"],
            _why(row),
        )
        for row in rows
    ]
    print_table(columns, shown)


def _why(node: dict[str, Any]) -> str:
    """Return what is known of a node that is not wholly in use."""
    said = []
    if node["lost"]:
        said.append("its agent is not heard of")
    if node["quarantined"]:
        said.append(node["quarantine_reason"])
    if node["cordoned"] or node["draining"]:
        said.append(node["cordon_reason"] or ("drained by an operator" if node["draining"] else "by an operator"))
    if node["broken_gpus"]:
        said.append(f"GPU {', '.join(str(gpu) for gpu in node['broken_gpus'])} broken")
    if node["check_index"] is not None and node["healthy"] is None:
        said.append(f"a check asked for at {node['check_index']} waits for its agent")
    return "; ".join(said)
