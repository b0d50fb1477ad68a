"""`gangline job cancel|hold|release|retry|reprioritise|clone`: what users ask of their jobs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.job import JOB_ID_CHARACTERS, JobArgument, look_up
from gangline.cli.node import AnswerTimeoutOption
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption
from gangline.cli.send import send, tell
from gangline.schemas.errors import GanglineError, UsageError

if TYPE_CHECKING:
    from gangline.cli.commands import Answered
    from gangline.events.types import JobSpec

ReasonOption = Annotated[str, typer.Option(help="Kept on the log.")]


def register(group: typer.Typer) -> None:
    """Add the commands to `gangline job`."""
    group.command("cancel")(cancel)
    group.command("hold")(hold)
    group.command("release")(release)
    group.command("retry")(retry)
    group.command("reprioritise")(reprioritise)
    group.command("clone")(clone)


def _whole_id(place: Place, job: str) -> str:
    return job if len(job) >= JOB_ID_CHARACTERS else str(look_up(place, job)["job_id"])


def cancel(
    *,
    job: JobArgument,
    reason: ReasonOption = "",
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Stop a job, now or before it starts; of an array every job.

    Example: gangline job cancel job-k3x7 --reason "wrong learning rate"
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import CancelJob

    place = Place(home, log=log, sql=sql)
    job_id = _whole_id(place, job)
    command = CancelJob(meta=new_meta(), job_id=job_id, reason=reason)
    done = f"{job_id} cancelled at {{index}}: what still runs of it is told to stop"
    tell(send(place, command, key=job_id, timeout_s=timeout), {"job_id": job_id}, done, as_json=json)


def hold(
    *,
    job: JobArgument,
    reason: ReasonOption = "",
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Keep a job from starting until it is released; if it runs, it saves, exits and is requeued.

    Example: gangline job hold job-k3x7 --reason "the data set is being mended"
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import HoldJob

    place = Place(home, log=log, sql=sql)
    job_id = _whole_id(place, job)
    command = HoldJob(meta=new_meta(), job_id=job_id, reason=reason)
    done = f"{job_id} held from {{index}} on: `gangline job release {job_id}` lets it start"
    tell(send(place, command, key=job_id, timeout_s=timeout), {"job_id": job_id}, done, as_json=json)


def release(
    *,
    job: JobArgument,
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Let a held job start when it is its turn.

    Example: gangline job release job-k3x7
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import ReleaseJob

    place = Place(home, log=log, sql=sql)
    job_id = _whole_id(place, job)
    done = f"{job_id} released at {{index}}: it starts when it is its turn"
    command = ReleaseJob(meta=new_meta(), job_id=job_id)
    tell(send(place, command, key=job_id, timeout_s=timeout), {"job_id": job_id}, done, as_json=json)


def retry(
    *,
    job: JobArgument,
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Begin a job's next attempt, from its newest checkpoint, with its failures so far forgiven.

    Example: gangline job retry job-k3x7
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import RetryJob

    place = Place(home, log=log, sql=sql)
    job_id = _whole_id(place, job)
    done = f"{job_id} is tried again from {{index}} on: what runs of it is told to save and exit"
    answered = send(place, RetryJob(meta=new_meta(), job_id=job_id), key=job_id, timeout_s=timeout)
    tell(answered, {"job_id": job_id}, done, as_json=json)
    if not json and _is_held(place, job_id, answered):
        print(f"it stays held, and starts only after `gangline job release {job_id}`")


def _is_held(place: Place, job_id: str, answered: "Answered") -> bool:
    """Whether a job is held; not where the tables cannot tell now."""
    from gangline.cli.reads import tables
    from gangline.projections.queries import find_job

    try:
        with tables(place, answered.tick_index) as connection:
            return bool(find_job(connection, job_id)["held"])
    except GanglineError:
        return False


def reprioritise(
    *,
    job: JobArgument,
    priority: Annotated[int, typer.Argument(help="Higher goes first inside a queue; -- before a negative one.")],
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Give a job another priority inside its queue.

    Example: gangline job reprioritise job-k3x7 10
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import ReprioritiseJob

    _check_priority("PRIORITY", priority)
    place = Place(home, log=log, sql=sql)
    job_id = _whole_id(place, job)
    command = ReprioritiseJob(meta=new_meta(), job_id=job_id, priority=priority)
    done = f"{job_id} has priority {priority} from {{index}} on"
    tell(send(place, command, key=job_id, timeout_s=timeout), {"job_id": job_id}, done, as_json=json)


def _check_priority(name: str, priority: int) -> None:
    """Raise UsageError for what no record holds; the core knows the real bounds."""
    least, most = -(2**31), 2**31 - 1
    if not least <= priority <= most:
        raise UsageError(f"{name}: this is {priority:,}, but has to be a number of 32 bits")


def clone(
    *,
    job: JobArgument,
    name: Annotated[str | None, typer.Option(help="Names the new job [as the old one].")] = None,
    queue: Annotated[str | None, typer.Option(help="Its queue [that of the old one].")] = None,
    priority: Annotated[int | None, typer.Option(help="Its priority [that of the old one].")] = None,
    held: Annotated[bool, typer.Option("--held", help="Do not start it before it is released.")] = False,
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Submit what a job asked for as a new job, with the same code; its checkpoints are not taken over.

    Example: gangline job clone job-k3x7 --queue research
    """
    from msgspec.structs import replace

    from gangline.cli.commands import new_meta
    from gangline.events import ids
    from gangline.events.control import SubmitJob

    if priority is not None:
        _check_priority("--priority", priority)
    place = Place(home, log=log, sql=sql)
    row = look_up(place, job)
    if row["array_id"]:
        raise UsageError(f"{row['job_id']} is one job of an array: clone {row['array_id']}, or submit its command")
    spec = replace(_spec_of(place, row), held=held)
    changes = {"name": name, "queue": queue, "priority": priority}
    spec = replace(spec, **{key: value for key, value in changes.items() if value is not None})
    command = SubmitJob(meta=new_meta(), spec=spec)
    answered = send(place, command, key=row["job_id"], timeout_s=timeout)
    new = ids.job_id(_log_id(place), command.meta.command_id or b"")
    done = f"{new} recorded at {{index}}, a clone of {row['job_id']}"
    tell(answered, {"job_id": new, "clone_of": row["job_id"]}, done, as_json=json)


def _spec_of(place: Place, row: dict[str, Any]) -> "JobSpec":
    """Return what a job asks for now: its priority may have been changed, and what it waited for has succeeded."""
    import msgspec
    from msgspec.structs import replace

    from gangline.cli.reads import tables
    from gangline.events.types import JobSpec
    from gangline.projections.queries import succeeded

    spec = replace(msgspec.convert(row["spec"], JobSpec), priority=row["priority"])
    if not spec.after:
        return spec
    with tables(place, None) as connection:
        done = succeeded(connection, spec.after)
    return replace(spec, after=tuple(other for other in spec.after if other not in done))


def _log_id(place: Place) -> str:
    from gangline.events import identity

    log = place.open_log()
    try:
        return identity.log_id(log)
    finally:
        log.close()
