"""`gangline node cordon|uncordon|drain|check`: take a node out of use, and back."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption, seconds
from gangline.cli.send import send, tell
from gangline.schemas.errors import GanglineError, TimedOut

if TYPE_CHECKING:
    from gangline.cli.commands import Answered

CHECK_WAIT_S = 30.0
"""How long a check may take; an agent looks at its disk, memory and GPUs within a second or two."""

POLL_S = 0.1
"""How often a waiting command asks the tables."""

MAX_LISTED = 5

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Its name, as `gangline nodes` shows it.")]
ReasonOption = Annotated[str, typer.Option(help="Kept on the log, and shown to those who ask.")]
AnswerTimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for the answer.", callback=seconds)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Take a node out of use, and back; let it be examined.")
    group.command("cordon")(cordon)
    group.command("uncordon")(uncordon)
    group.command("drain")(drain)
    group.command("check")(check)
    app.add_typer(group, name="node")


def cordon(
    *,
    node: NodeArgument,
    reason: ReasonOption = "",
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Start nothing new on a node; what runs there runs on.

    Example: gangline node cordon node-7 --reason "its fan is loud"
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import CordonNode

    command = CordonNode(meta=new_meta(), node_id=node, reason=reason)
    answered = send(Place(home, log=log), command, key=node, timeout_s=timeout)
    done = f"{node} cordoned at {{index}}: nothing new starts there until `gangline node uncordon {node}`"
    tell(answered, {"node_id": node}, done, as_json=json)


def uncordon(
    *,
    node: NodeArgument,
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Use a node again, whether it was cordoned, drained or quarantined.

    Example: gangline node uncordon node-7
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import UncordonNode

    command = UncordonNode(meta=new_meta(), node_id=node)
    answered = send(Place(home, log=log), command, key=node, timeout_s=timeout)
    tell(answered, {"node_id": node}, f"{node} is used again, from {{index}} on", as_json=json)


def drain(
    *,
    node: NodeArgument,
    reason: ReasonOption = "",
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Empty a node: preemptible jobs save and are requeued, the others end by themselves, nothing new starts.

    Example: gangline node drain node-7 --reason "a new kernel"
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import DrainNode

    place = Place(home, log=log, sql=sql)
    answered = send(place, DrainNode(meta=new_meta(), node_id=node, reason=reason), key=node, timeout_s=timeout)
    tell(answered, {"node_id": node}, f"{node} drains from {{index}} on: nothing new starts there", as_json=json)
    if not json:
        for line in _left_on(place, node, answered):
            print(line)


def _left_on(place: Place, node: str, answered: "Answered") -> list[str]:
    """Return, in words, what is still on a node; nothing where the tables cannot tell now."""
    from gangline.cli.reads import tables
    from gangline.projections.queries import jobs_on

    try:
        with tables(place, answered.tick_index) as connection:
            jobs = jobs_on(connection, node)
    except GanglineError:
        return []
    if not jobs:
        return ["it is empty: it can be taken down now"]
    lines = []
    leaving = [job["job_id"] for job in jobs if job["state"] == "stopping"]
    staying = [job["job_id"] for job in jobs if job["state"] != "stopping"]
    if leaving:
        lines.append(f"told to save and exit, and requeued then: {_listed(leaving)}")
    if staying:
        lines.append(
            f"not preemptible, running on until they end: {_listed(staying)} (`gangline job hold JOB` requeues one)"
        )
    return [*lines, f"`gangline nodes` shows {node} as drained when it is empty"]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def check(
    *,
    node: NodeArgument,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the agent's report.", callback=seconds)
    ] = CHECK_WAIT_S,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Let a node's agent examine it; a sick node is quarantined, a healthy one is released. Exit with 1 if it is sick.

    Example: gangline node check node-7
    """
    from gangline.cli.commands import new_meta, refuse_if_turned_away
    from gangline.cli.output import print_json, printable
    from gangline.events.control import CheckNode

    place = Place(home, log=log, sql=sql)
    answered = send(place, CheckNode(meta=new_meta(), node_id=node), key=node, timeout_s=timeout)
    message = getattr(answered.answer, "message", None)
    if json and message is not None:
        print_json({"node_id": node, "answer": type(answered.answer).__name__, "message": message})
    refuse_if_turned_away(answered)
    index = answered.answer.control_index
    found = _report(place, node, index, timeout)
    if json:
        said = {name: found[name] for name in ("report", "state", "quarantine_reason", "checked_at_us")}
        print_json({"node_id": node, "index": index, "healthy": bool(found["healthy"]), **said})
    else:
        print(printable(f"{node} is {'healthy' if found['healthy'] else 'sick'}: {found['report']}"))
        if not found["healthy"]:
            print(f"it is quarantined: mend it, and check it again, or `gangline node uncordon {node}`")
    if not found["healthy"]:
        raise typer.Exit(1)


def _report(place: Place, node: str, index: int, timeout_s: float) -> dict[str, Any]:
    """Return the node's row once it has the report of this check. Raises TimedOut."""
    from gangline.cli.reads import tables
    from gangline.projections.queries import list_nodes

    deadline = time.monotonic() + timeout_s
    while True:
        with tables(place, None) as connection:
            row = next((row for row in list_nodes(connection) if row["node_id"] == node), None)
        if row is not None and row["check_index"] == index and row["healthy"] is not None:
            return row
        if row is not None and row["check_index"] is not None and row["check_index"] > index:
            raise TimedOut(
                f"{node} was asked for another check at {row['check_index']} meanwhile: see `gangline nodes`"
            )
        if time.monotonic() > deadline:
            raise TimedOut(
                f"asked at {index}, no report from {node} within {timeout_s:g} s: see whether its agent runs; the "
                "report counts when it comes, and `gangline nodes` shows it"
            )
        time.sleep(POLL_S)
