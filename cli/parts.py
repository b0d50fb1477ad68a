"""`gangline scheduler`, `agent`, `projector` and `notifier`: the parts as processes of their own, as in production."""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gangline.cli.place import HomeOption, LogOption, Place, SqlOption


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("scheduler")(scheduler)
    app.command("agent")(agent)
    app.command("projector")(projector)
    app.command("notifier")(notifier)


def scheduler(
    *,
    open_term: Annotated[bool, typer.Option("--open-term", help="Open a term for this version of the code.")] = False,
    boundary: Annotated[bool, typer.Option("--boundary", help="Write the term's boundary snapshot, and exit.")] = False,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Decide rounds, or stand by to.

    Example: gangline scheduler --log kafka://broker:9092/gangline --open-term
    """
    words = ["--open-term"] if open_term else []
    words += ["--boundary"] if boundary else []
    _become("gangline.scheduler", Place(home, log=log), words)


def agent(
    *,
    node_id: Annotated[str | None, typer.Option(help="Unique in the cluster [the host name].")] = None,
    gpus: Annotated[int | None, typer.Option(help="Slots to declare where there are no GPUs.", min=1)] = None,
    gpu_type: Annotated[str | None, typer.Option(help="The type of the GPUs [as found].")] = None,
    pod: Annotated[str | None, typer.Option(help="Nodes with fast links to each other.")] = None,
    address: Annotated[str | None, typer.Option(help="Where other nodes reach this one.")] = None,
    check_every: Annotated[float | None, typer.Option(help="Seconds between looks at the node [60].", min=0.1)] = None,
    check_program: Annotated[
        Path | None, typer.Option(help="The node is sick if this exits with another code than 0.")
    ] = None,
    store: Annotated[
        list[str] | None, typer.Option(help="A store of checkpoints to watch; each by one agent. May be repeated.")
    ] = None,
    store_full: Annotated[float | None, typer.Option(help="% of it from which much data waits [90].")] = None,
    store_released: Annotated[float | None, typer.Option(help="% of it at which that is over [85].")] = None,
    pace_window: Annotated[
        float | None, typer.Option(help="Seconds over which ranks are compared, for slow ones [60].", min=0.1)
    ] = None,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Run gangs on this node.

    Example: gangline agent --log kafka://broker:9092/gangline --pod pod-3
    """
    named: dict[str, object] = {"node-id": node_id, "gpus": gpus, "gpu-type": gpu_type, "pod": pod, "address": address}
    named |= {"check-every": check_every, "check-program": check_program and check_program.absolute()}
    named |= {"store-full": store_full, "store-released": store_released, "pace-window": pace_window}
    words = [word for name, value in named.items() if value is not None for word in (f"--{name}", str(value))]
    words += [word for one in store or () for word in ("--store", one)]
    _become("gangline.agents", Place(home, log=log), words)


def projector(
    *,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Drop the tables and compute them anew.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Project what is decided now, and exit.")] = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Feed the tables that `gangline jobs` and the like read.

    Example: gangline projector --sql postgresql+psycopg://gangline@db/gangline
    """
    place = Place(home, log=log, sql=sql)
    words = ["--sql", place.sql_url] + (["--rebuild"] if rebuild else []) + (["--once"] if once else [])
    _become("gangline.projections", place, words)


def notifier(
    *,
    routes: Annotated[
        Path | None, typer.Option(help="Who is told what, a TOML file [notify.toml in the folder].")
    ] = None,
    first_index: Annotated[
        int | None,
        typer.Option("--from", metavar="INDEX", help="At its first start: tell what is from here on.", min=0),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Say whether the routes are right, and exit.")] = False,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Tell users when their jobs start, are preempted, fail or end, by webhook or command.

    It begins with what happens after its first start. `gangline up` runs it, too.

    Example: gangline notifier --routes notify.toml
    """
    words = [] if routes is None else ["--routes", str(routes.absolute())]
    words += [] if first_index is None else ["--from", str(first_index)]
    words += ["--check"] if check else []
    _become("gangline.agents.notifier", Place(home, log=log), words)


def _become(module: str, place: Place, words: list[str]) -> NoReturn:
    arguments = [sys.executable, "-m", module, "--home", str(place.home), "--log", place.log_url, *words]
    os.execv(sys.executable, arguments)  # noqa: S606 - our own parts, which take signals themselves
