"""`gangline policy show|activate`: every number that the scheduler decides by, and the tree of queues, as one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.node import AnswerTimeoutOption
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption
from gangline.cli.reads import AFTER_WAIT_S, AfterOption, TimeoutOption, tables
from gangline.cli.send import send
from gangline.schemas.errors import NotFound, Refused

if TYPE_CHECKING:
    from gangline.events.policy import Policy


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Show or change the numbers and queues that are decided by.")
    group.command("show")(show)
    group.command("activate")(activate)
    app.add_typer(group, name="policy")


def show(
    *,
    after: AfterOption = None,
    timeout: TimeoutOption = AFTER_WAIT_S,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Print the policy in force as TOML that `gangline policy activate` takes.

    Example: gangline policy show > policy.toml
    """
    from gangline.cli.output import print_json
    from gangline.cli.policy_text import policy_text

    policy = in_force(Place(home, log=log, sql=sql), after, timeout)
    if json:
        print_json(policy)
    else:
        print(policy_text(policy), end="")


def activate(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML with [policy], [queues] or both.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check it and show what would change, no more.")] = False,
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Activate a policy, and show what it changes. What a table leaves out has its default; no table, no change.

    Example: gangline policy activate policy.toml --dry-run
    """
    from gangline.cli.commands import new_meta, refuse_if_turned_away
    from gangline.cli.output import print_json, printable
    from gangline.cli.policy_text import changes
    from gangline.events.control import ActivatePolicy

    place = Place(home, log=log, sql=sql)
    now = in_force(place)
    policy = _read(file, now)
    changed = list(changes(now, policy))
    document: dict[str, object] = {"file": str(file), "changes": changed}
    done = "nothing was changed (--dry-run)"
    if dry_run:
        _refuse_lost_jobs(place, now, policy)
    else:
        answered = send(place, ActivatePolicy(meta=new_meta(), policy=policy), key="policy", timeout_s=timeout)
        answer = answered.answer
        message = getattr(answer, "message", None)
        place_on_log = {"index": answer.control_index, "decided_index": answered.tick_index}
        document |= {"answer": type(answer).__name__, "message": message, **place_on_log}
        if json and message is not None:
            print_json(document)
        refuse_if_turned_away(answered)
        done = f"the policy of {file} is active, from the tick after {answered.tick_index} on"
    if json:
        print_json(document)
        return
    for line in changed or ["it says the same as the policy in force"]:
        print(printable(line))
    print(printable(done))


def _refuse_lost_jobs(place: Place, now: "Policy", policy: "Policy") -> None:
    """Raise Refused for a queue that would be gone with jobs in it, as the scheduler would refuse it."""
    from gangline.projections.queries import ENDED, STATES, list_jobs

    live = [state for state in STATES if state not in ENDED]
    with tables(place, None) as connection:
        for path in sorted({queue.path for queue in now.queues} - {queue.path for queue in policy.queues}):
            if jobs := list_jobs(connection, states=live, queue=path, limit=1):
                raise Refused(
                    f"it would be rejected: queue '{path}' would be gone while jobs that have not ended are in it, "
                    f"such as {jobs[0]['job_id']}: cancel what is there or let it end first, or keep the queue"
                )


def in_force(place: Place, after: int | None = None, timeout_s: float = AFTER_WAIT_S) -> "Policy":
    """Return the policy that is decided by. Raises NotFound if none is active yet."""
    import msgspec

    from gangline.events.policy import Policy
    from gangline.projections.queries import policy_in_force

    with tables(place, after, timeout_s) as connection:
        row = policy_in_force(connection)
    if row is None:
        raise NotFound("no policy is active yet: `gangline up` activates the default one when it starts")
    return msgspec.json.decode(row["policy"], type=Policy)


def _read(path: Path, now: "Policy") -> "Policy":
    """Return what a file says, with the tables that it has not as they are. Raises UsageError with table and key."""
    from msgspec.structs import replace

    from gangline.cli.policy_file import read_policy, refuse_policy
    from gangline.cli.toml_file import TomlFile

    file = TomlFile(path, "a policy")
    policy = file.read(read_policy)
    if "queues" not in file.table:
        policy = replace(policy, queues=now.queues)
    if "policy" not in file.table:
        policy = replace(now, queues=policy.queues)
    refuse_policy(file, policy)
    return policy
