"""`gangline queue set|remove`: change the tree of queues, one queue at a time."""

from typing import Annotated

import typer

from gangline.cli.node import AnswerTimeoutOption
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption
from gangline.cli.send import send, tell
from gangline.events.policy import Policy, Queue, Quota
from gangline.schemas.errors import NotFound, UsageError

MAX_WEIGHT = (1 << 31) - 1
"""As in a policy's file."""

NONE = "none"
"""Takes a guarantee or a ceiling away."""

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="As in org/team/project.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Change the tree of queues; `gangline queues` shows it.")
    group.command("set")(set_queue)
    group.command("remove")(remove)
    app.add_typer(group, name="queue")


def set_queue(
    *,
    path: PathArgument,
    guarantee: Annotated[
        list[str] | None, typer.Option(help="GPUs that it can always have: 64, H100=64, or none. May be repeated.")
    ] = None,
    ceiling: Annotated[
        list[str] | None, typer.Option(help="GPUs that it has at most: 128, H100=128, or none. May be repeated.")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="What it weighs beside its siblings: 2, or H100=2. May be repeated.")
    ] = None,
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Add a queue, or change one; what is not named stays as it is.

    Example: gangline queue set org/vision --guarantee 64 --ceiling 128 --weight 2
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import SetQueue

    place = Place(home, log=log, sql=sql)
    queue = _changed(path, _quotas_of(place, path), guarantee or [], ceiling or [], weight or [])
    answered = send(place, SetQueue(meta=new_meta(), queue=queue), key=path, timeout_s=timeout)
    tell(answered, {"queue": path}, f"queue {path} is set, from {{index}} on: {_shown(queue)}", as_json=json)


def remove(
    *,
    path: PathArgument,
    timeout: AnswerTimeoutOption = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Remove a queue that has neither jobs nor queues in it.

    Example: gangline queue remove org/vision
    """
    from gangline.cli.commands import new_meta
    from gangline.events.control import RemoveQueue

    command = RemoveQueue(meta=new_meta(), path=path)
    answered = send(Place(home, log=log), command, key=path, timeout_s=timeout)
    tell(answered, {"queue": path}, f"queue {path} removed at {{index}}", as_json=json)


def _quotas_of(place: Place, path: str) -> tuple[Quota, ...]:
    """Return the quotas that a queue has now; none for a new queue."""
    import msgspec

    from gangline.cli.reads import tables
    from gangline.projections.queries import policy_in_force

    with tables(place, None) as connection:
        row = policy_in_force(connection)
    if row is None:
        raise NotFound("there is no policy yet: `gangline policy activate` gives one")
    policy = msgspec.json.decode(row["policy"], type=Policy)
    return next((queue.quotas for queue in policy.queues if queue.path == path), ())


def _changed(
    path: str, quotas: tuple[Quota, ...], guarantees: list[str], ceilings: list[str], weights: list[str]
) -> Queue:
    from msgspec.structs import replace

    by_type = {quota.gpu_type: quota for quota in quotas}

    def quota_of(gpu_type: str) -> Quota:
        # A type that is named for the first time has had what holds for all types.
        general = by_type.get("", Quota())
        return by_type.get(gpu_type) or replace(general, gpu_type=gpu_type)

    for words, field in ((guarantees, "guarantee_milli"), (ceilings, "ceiling_milli")):
        for word in words:
            gpu_type, value = _split(word)
            milli = None if value == NONE else _milli(f"--{field.removesuffix('_milli')} {word}", value)
            by_type[gpu_type] = replace(quota_of(gpu_type), **{field: milli})
    for word in weights:
        gpu_type, value = _split(word)
        if not value.isdecimal():
            raise UsageError(f"--weight {word}: this has to be a whole number, as in 2 or H100=2")
        # By its length first: Python does not read numbers of thousands of digits.
        if len(value.lstrip("0")) > len(str(MAX_WEIGHT)) or int(value) > MAX_WEIGHT:
            raise UsageError(f"--weight {word}: name at most {MAX_WEIGHT:,}")
        by_type[gpu_type] = replace(quota_of(gpu_type), weight=int(value))
    return Queue(path=path, quotas=tuple(by_type[gpu_type] for gpu_type in sorted(by_type)))


def _split(word: str) -> tuple[str, str]:
    gpu_type, equals, value = word.rpartition("=")
    if equals and not gpu_type:
        raise UsageError(f"{word}: name a GPU type before '=', as in H100=64")
    return gpu_type, value


def _milli(said: str, value: str) -> int:
    from gangline.cli.units import MILLI, parse_milli
    from gangline.cli.values import MAX_GPUS

    try:
        milli = parse_milli(value)
    except ValueError as error:
        raise UsageError(f"{said}: {error}, as in 64, H100=64 or none") from error
    if milli > MAX_GPUS * MILLI:
        raise UsageError(f"{said}: name at most {MAX_GPUS:,} GPUs, or none")
    return milli


def _shown(queue: Queue) -> str:
    from gangline.events.amounts import milli_shown

    def gpus(milli: int | None, nothing: str) -> str:
        return nothing if milli is None else milli_shown(milli)

    parts = [
        f"{quota.gpu_type or 'every type'}: guarantee {gpus(quota.guarantee_milli, 'a share of what is left')}, "
        f"ceiling {gpus(quota.ceiling_milli, 'none')}, weight {quota.weight}"
        for quota in queue.quotas
    ]
    return "; ".join(parts) or "guarantee a share of what is left, no ceiling, weight 1"
