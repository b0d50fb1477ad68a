"""`gangline queues`: what each queue is guaranteed, uses, has borrowed and lent, what waits, and what could start."""

from typing import TYPE_CHECKING, Any

import typer

from gangline.cli.output import print_json, print_table, say
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption
from gangline.cli.reads import AFTER_WAIT_S, AfterOption, TimeoutOption, tables

if TYPE_CHECKING:
    from gangline.scheduler.explanation.tree import QueueStanding


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("queues")(queues)


def queues(
    *,
    after: AfterOption = None,
    timeout: TimeoutOption = AFTER_WAIT_S,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """List the queues: guarantee, use, borrowed, lent, pending, and what could start now; each with all below it.

    Example: gangline queues
    """
    from gangline.projections.queries import list_queues

    place = Place(home, log=log, sql=sql)
    with tables(place, after, timeout) as connection:
        rows = list_queues(connection)
    standings = _standings(place)
    if json:
        import msgspec

        print_json(
            [
                {**row, "types": [] if one is None else msgspec.to_builtins(one.types)}
                for row in rows
                for one in [standings.get(row["queue"])]
            ]
        )
        return
    _show(rows, standings)


def _standings(place: Place) -> "dict[str, QueueStanding]":
    """Return by path how the queues stand for the core; nothing where the log does not tell, or other code decides."""
    from gangline.cli.moments import moment
    from gangline.scheduler.explanation.tree import queue_standings
    from gangline.schemas.errors import GanglineError

    try:
        with moment(place, None) as now:
            return {one.path: one for one in queue_standings(now.state)}
    except GanglineError as error:
        say(f"guarantees and use are not shown: {error}")
        return {}


def _show(rows: "list[dict[str, Any]]", standings: "dict[str, QueueStanding]") -> None:
    from gangline.events.amounts import milli_shown

    shown: list[tuple[object, ...]] = []
    for row in rows:
        one = standings.get(row["queue"])
        jobs = (row["queue"], row["running"], row["pending"] if one is None else one.pending)
        if one is None or not one.types:
            shown.append((*jobs, *(None,) * 8))
            continue
        for number, quota in enumerate(one.types):
            shown.append(
                (
                    *(jobs if not number else ("", "", "")),
                    quota.gpu_type or "none",
                    milli_shown(quota.guarantee_milli),
                    "-" if quota.ceiling_milli is None else milli_shown(quota.ceiling_milli),
                    milli_shown(quota.use_milli),
                    milli_shown(quota.borrowed_milli),
                    milli_shown(quota.lent_milli),
                    milli_shown(one.pending_milli) if not number else "",
                    milli_shown(quota.could_start_milli)
                    + (
                        ""
                        if quota.could_start_fixed_milli == quota.could_start_milli
                        else f" ({milli_shown(quota.could_start_fixed_milli)} without borrowing)"
                    ),
                )
            )
    columns = ("queue", "running", "pending", "gpu type", "guarantee", "ceiling", "use", "borrowed", "lent")
    print_table((*columns, "asked for", "could start now"), shown)
