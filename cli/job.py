"""`gangline job show|logs|wait`: one job."""

import time
from typing import Annotated, Any

import typer

from gangline.cli.output import BOLD, paint, print_fields, print_json, print_table, printable
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption, seconds
from gangline.cli.reads import AFTER_WAIT_S, AfterOption, TimeoutOption, tables
from gangline.schemas.errors import NotFound, TimedOut

APPEARS_S = 2.0
"""How long a whole job id may take to appear in the tables: that of a job submitted just now is not there yet."""

JOB_ID_CHARACTERS = 16
"""`job-` and 12 more, and for a job of an array its number; what is shorter is the beginning of one."""

POLL_S = 0.1
"""How often a waiting command asks the tables."""

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Its id, or the beginning of it.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    from gangline.cli import job_commands

    group = typer.Typer(no_args_is_help=True, help="Look at one job, wait for it, hold it, cancel it, run it again.")
    group.command("show")(show)
    group.command("logs")(logs)
    group.command("wait")(wait)
    job_commands.register(group)
    app.add_typer(group, name="job")


def look_up(place: Place, job: str, after: int | None = None, timeout_s: float = AFTER_WAIT_S) -> dict[str, Any]:
    """Return a job's row, waiting a little for a job that may have been submitted just now. Raises NotFound."""
    from gangline.projections.queries import find_job

    deadline = time.monotonic() + (APPEARS_S if len(job) >= JOB_ID_CHARACTERS and after is None else 0.0)
    while True:
        try:
            with tables(place, after, timeout_s) as connection:
                return find_job(connection, job)
        except NotFound:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_S)


def show(
    *,
    job: JobArgument,
    after: AfterOption = None,
    timeout: TimeoutOption = AFTER_WAIT_S,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Show a job: what it asked for, its attempts and checkpoints, and its timeline from the log.

    Example: gangline job show job-k3x7
    """
    from gangline.cli.why import explained
    from gangline.projections import queries

    place = Place(home, log=log, sql=sql)
    job_id = look_up(place, job, after, timeout)["job_id"]
    with tables(place, None) as connection:
        row = queries.find_job(connection, job_id)
        attempts = queries.attempts_of(connection, job_id)
        checkpoints = queries.checkpoints_of(connection, job_id)
        timeline = queries.timeline_of(connection, job_id)
    waits = explained(place, job_id) if row["state"] == "pending" else None
    if json:
        whole = {"job": row, "attempts": attempts, "checkpoints": checkpoints, "timeline": timeline, "why": waits}
        print_json(whole)
        return
    _show_job(row, waits)
    _show_attempts(attempts)
    if checkpoints:
        print(paint("\nCHECKPOINTS", BOLD))
        shown = [(one["step"], one["attempt"], one["state"], one["reason"] or "", one["uri"]) for one in checkpoints]
        print_table(("step", "attempt", "state", "reason", "uri"), shown)
    _show_timeline(timeline)


def _show_job(row: dict[str, Any], waits: str | None) -> None:
    import shlex

    from gangline.cli.units import show_size, show_time

    spec = row["spec"]
    fields = {
        "job": row["job_id"],
        "name": row["name"],
        "state": "held" if row["held"] and row["state"] == "pending" else row["state"],
        "cause": row["cause"] or None,
        "why": waits,
        "queue": row["queue"],
        "priority": row["priority"] or None,
        "array": row["array_id"]
        or (row["array_size"] and f"{row['array_size']} jobs: gangline jobs --array {row['job_id']}"),
        "gave way": f"{row['preemptions']} times, and was moved {row['moves']} times"
        if row["preemptions"] or row["moves"]
        else None,
        "gpus": show_size(row),
        "nodes": row["nodes"],
        "gpu types": ", ".join(row["gpu_types"]) or None,
        "command": shlex.join(spec["command"]),
        "code": spec["code"] and f"{spec['code']['sha256'][:12]} (commit {(spec['code']['commit'] or 'none')[:12]})",
        "checkpoints": spec["checkpoints"],
        "after": ", ".join(spec["after"]) or None,
        "tells": ", ".join(spec["notify"]) or None,
        "by": row["actor"],
        "submitted": f"{show_time(row['submitted_at_us'])} at {row['submitted_index']}",
    }
    print_fields(fields)


def _show_attempts(attempts: list[dict[str, Any]]) -> None:
    print(paint("\nATTEMPTS", BOLD))
    shown = []
    for attempt in attempts:
        for share in attempt["placement"]:
            gpus = ",".join(str(gpu) for gpu in share["gpus"])
            exits = " ".join(f"{rank}:{code}" for rank, code in (share["exits"] or {}).items())
            ended = attempt["outcome"] or attempt["state"]
            said = share["failure"] or attempt["cause"] or ""
            shown.append((attempt["attempt"], share["node_id"], gpus, ended, exits, share["run_dir"], said))
    print_table(("attempt", "node", "gpus", "outcome", "exits", "output in", "cause"), shown)


def _show_timeline(timeline: list[dict[str, Any]]) -> None:
    from gangline.cli.units import show_time
    from gangline.projections.rows import json

    print(paint("\nTIMELINE", BOLD))
    shown = []
    for entry in timeline:
        said = dict(_said(*item) for item in entry["detail"].items() if item[1] not in (None, "", {}, False))
        detail = " ".join(f"{name}={value if isinstance(value, str) else json(value)}" for name, value in said.items())
        shown.append(
            (
                entry["control_index"],
                show_time(entry["at_us"]),
                entry["kind"],
                entry["attempt"],
                entry["node_id"],
                detail,
            )
        )
    print_table(("index", "time", "what", "attempt", "node", "detail"), shown)


def _said(name: str, value: object) -> tuple[str, object]:
    """Return a detail as people read it."""
    from gangline.cli.units import show_duration, show_time

    if not (name.endswith("_us") and isinstance(value, int)):
        return name, value
    is_moment = name.endswith("_at_us") or name == "until_us"
    return name.removesuffix("_us"), (show_time if is_moment else show_duration)(value)


def logs(
    *,
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on, over attempts, until the job ends.")] = False,
    attempt: Annotated[int | None, typer.Option(help="Begin with this attempt [the latest].", min=1)] = None,
    rank: Annotated[int | None, typer.Option(help="Only this rank.", min=0)] = None,
    after: AfterOption = None,
    timeout: TimeoutOption = AFTER_WAIT_S,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Print what a job's ranks write.

    Example: gangline job logs -f job-k3x7
    """
    from gangline.cli.logs import print_logs

    place = Place(home, log=log, sql=sql)
    job_id = look_up(place, job, after, timeout)["job_id"]
    print_logs(place, job_id, follow=follow, first_attempt=attempt, rank=rank, as_json=json)


def wait(
    *,
    job: JobArgument,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds to wait at most [no limit].", callback=seconds)
    ] = None,
    after: AfterOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Wait until a job has ended; exit with 0 if it succeeded, 1 if it failed or was cancelled, 5 if time is up.

    Example: gangline job wait job-k3x7 --timeout 3600
    """
    from gangline.projections.queries import ENDED

    place = Place(home, log=log, sql=sql)
    deadline = None if timeout is None else time.monotonic() + timeout
    row = look_up(place, job, after, AFTER_WAIT_S if timeout is None else timeout)
    while row["state"] not in ENDED:
        if deadline is not None and time.monotonic() > deadline:
            raise TimedOut(f"{row['job_id']} is {row['state']} after {timeout:g} s: wait longer with --timeout")
        time.sleep(POLL_S)
        row = look_up(place, row["job_id"])
    if json:
        print_json({name: row[name] for name in ("job_id", "state", "cause", "attempts", "ended_index")})
    else:
        print(printable(f"{row['job_id']} {row['state']} at {row['ended_index']}: {row['cause']}"))
    if row["state"] != "succeeded":
        raise typer.Exit(1)
