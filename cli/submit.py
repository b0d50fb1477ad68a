"""`gangline submit`: a spec file, or flags and a command, to a job id and its answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, seconds
from gangline.schemas.errors import UsageError

if TYPE_CHECKING:
    from gangline.cli.spec import Asked
    from gangline.events.types import Code

COMMAND = "gangline.command"
"""Where the words behind `--` are kept while the flags are read."""


class CommandAfterDashes(TyperCommand):
    """Keeps what stands behind `--` apart, so that a spec file and a command cannot be taken for each other."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its Context private
        """Cut the words at the first `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("submit", cls=CommandAfterDashes, options_metavar="[OPTIONS] [-- COMMAND...]")(submit)


def submit(
    *,
    context: typer.Context,
    spec: Annotated[
        Path | None, typer.Argument(help="A TOML file; flags go before what it says.", metavar="SPEC")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Names the job for people.")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue [default].")] = None,
    gpus: Annotated[float | None, typer.Option(help="GPUs in all, one rank each; 0.5 is a part of one.")] = None,
    min_gpus: Annotated[int | None, typer.Option(help="Run on so many at least; needs --max-gpus.")] = None,
    max_gpus: Annotated[int | None, typer.Option(help="Grow into as many idle ones; needs --min-gpus.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Spread the GPUs evenly over so many nodes.")] = None,
    gpu_type: Annotated[list[str] | None, typer.Option(help="A type that will do; may be repeated.")] = None,
    cpus: Annotated[float | None, typer.Option(help="CPUs a rank.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory a rank, as in 16GiB.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first inside a queue [0].")] = None,
    retries: Annotated[int | None, typer.Option(help="Failures in a row without a newer checkpoint.")] = None,
    max_runtime: Annotated[str | None, typer.Option(help="An attempt is stopped after this, as in 2h.")] = None,
    grace: Annotated[str | None, typer.Option(help="Between SIGTERM and SIGKILL, as in 30s.")] = None,
    code: Annotated[str | None, typer.Option(help="A folder that every attempt gets a copy of.")] = None,
    checkpoints: Annotated[str | None, typer.Option(help="The folder of checkpoints, on all nodes.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the ranks; may be repeated.")] = None,
    topology_required: Annotated[
        str | None, typer.Option(help="Only within one `node` or `pod`.", metavar="node|pod")
    ] = None,
    topology_preferred: Annotated[
        str | None, typer.Option(help="Within one `node` or `pod` where that can be.", metavar="node|pod")
    ] = None,
    preemptible: Annotated[
        bool | None,
        typer.Option("--preemptible/--not-preemptible", help="Whether it may give way, and borrow [it may]."),
    ] = None,
    held: Annotated[bool | None, typer.Option("--held", help="Wait for `gangline job release`.")] = None,
    after: Annotated[list[str] | None, typer.Option(help="Start when this job has succeeded; may be repeated.")] = None,
    array: Annotated[int | None, typer.Option(help="So many jobs, told apart by GANGLINE_ARRAY_INDEX.")] = None,
    array_parallel: Annotated[int | None, typer.Option(help="Of an array, so many at a time [all].")] = None,
    interactive: Annotated[bool | None, typer.Option("--interactive", help="End when idle.")] = None,
    idle_timeout: Annotated[str | None, typer.Option(help="Idle for so long, as in 1h [as in the policy].")] = None,
    data: Annotated[str | None, typer.Option(help="What it will write, as in 2TiB: much waits for space.")] = None,
    notify: Annotated[
        list[str] | None, typer.Option(help="A URL told of start, preemption, failure, end; may be repeated.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.", callback=seconds)] = 5.0,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Submit a job, and print its id, where it stands on the log, and whether it was admitted.

    Example: gangline submit --gpus 2 --code . -- python train.py
    """
    options: dict[str, object] = {"name": name, "queue": queue, "priority": priority, "retries": retries}
    options |= {
        "max_runtime": max_runtime,
        "grace": grace,
        "code": code,
        "checkpoints": checkpoints,
        "env": env,
        "after": after,
        "held": held,
    }
    options |= {"min_gpus": min_gpus, "max_gpus": max_gpus, "preemptible": preemptible, "notify": notify, "data": data}
    options |= {"array": array, "array_parallel": array_parallel, "interactive": interactive}
    options |= {"idle_timeout": idle_timeout, "topology_required": topology_required}
    options |= {"topology_preferred": topology_preferred, "gpus": gpus, "nodes": nodes, "gpu_type": gpu_type}
    options |= {"cpus": cpus, "memory": memory}
    _submit(asked_of(context, spec, options), Place(home, log=log), timeout_s=timeout, as_json=json)


def asked_of(context: typer.Context, spec: Path | None, options: Mapping[str, Any]) -> "Asked":
    """Return what a spec file and options ask for, by their names. Raises UsageError that names the key or the flag."""
    flags = {key: options[key] for key in _PLAIN}
    flags["command"] = context.meta.get(COMMAND)
    flags["env"] = None if options["env"] is None else _variables(options["env"])
    flags["elastic"] = _elastic(options["min_gpus"], options["max_gpus"])
    topology = {"required": options["topology_required"], "preferred": options["topology_preferred"]}
    flags["topology"] = _given(topology) or None
    return _asked(spec, _given(flags), _given({key: options[key] for key in _RESOURCES}))


_PLAIN = (
    "name queue priority retries max_runtime grace code checkpoints preemptible held after array array_parallel data "
    "notify interactive idle_timeout"
).split()
"""Options that are keys of a spec by the same name."""
_RESOURCES = ("gpus", "nodes", "gpu_type", "cpus", "memory")


def _elastic(least: int | None, most: int | None) -> dict[str, int] | None:
    if least is None and most is None:
        return None
    if least is None or most is None:
        missing = "--min-gpus" if least is None else "--max-gpus"
        raise UsageError(f"{missing} is missing: an elastic job names the least and the most that it runs on")
    return {"min": least, "max": most}


def _given(flags: Mapping[str, object]) -> dict[str, Any]:
    return {key: value for key, value in flags.items() if value is not None}


def _variables(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise UsageError(f"--env {pair}: write NAME=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _asked(path: Path | None, flags: dict[str, Any], resources: dict[str, Any]) -> "Asked":
    """Return what the file and the flags ask for. Raises UsageError that names the key and the line, or the flag."""
    from gangline.cli.spec import build, read_spec

    source = None if path is None else read_spec(path)
    table = {} if source is None else dict(source.table)
    if source is None and "command" not in flags:
        raise UsageError("there is nothing to run: name a spec file, or write the command behind --")

    def bad(keys: tuple[str | int, ...], message: str) -> UsageError:
        key = [str(one) for one in keys]
        if source is not None and not (key[0] in flags or (key[0] == "resources" and key[-1] in resources)):
            return source.bad(keys, message)
        named = {"resources": key[-1], "elastic": f"{key[-1]}_gpus", "topology": f"topology_{key[-1]}"}
        flag = named.get(key[0], key[0])
        where = "-- COMMAND" if key[0] == "command" else f"--{flag}"
        return UsageError(f"{where.replace('_', '-')}: {message}")

    for key in ("env", "topology"):
        if key in flags and isinstance(table.get(key), dict):
            flags = {**flags, key: {**table[key], **flags[key]}}
    # What flags name is relative to where they are typed, not to the file.
    for key in ("code", "checkpoints"):
        if flags.get(key) and "://" not in flags[key]:
            flags = {**flags, key: str(Path(flags[key]).expanduser().absolute())}
    table |= flags
    if resources and isinstance(table.get("resources", {}), dict):
        table["resources"] = {**table.get("resources", {}), **resources}
    if source is None:
        table["resources"] = {**({} if "elastic" in table else {"gpus": 1}), **table.get("resources", {})}
    folder = Path.cwd() if path is None else path.absolute().parent
    stem = Path(table["command"][0]).name if path is None and table.get("command") else ""
    asked = build(table, bad, folder=folder, name=path.stem if path is not None else stem)
    if asked.code is not None and not asked.code.is_dir():
        raise bad(("code",), f"{asked.code} is no folder: name the folder with the job's code")
    return asked


def _submit(asked: "Asked", place: Place, *, timeout_s: float, as_json: bool) -> None:
    from msgspec.structs import replace

    from gangline.cli.commands import Commands, new_meta, refuse_if_turned_away
    from gangline.cli.output import print_json
    from gangline.events import ids
    from gangline.events.control import SubmitJob

    log = place.open_log()
    try:
        commands = Commands(log, place.home / "snapshots")
        spec = asked.spec if asked.code is None else replace(asked.spec, code=_store_code(asked.code, place))
        command = SubmitJob(meta=new_meta(), spec=spec)
        command_id = command.meta.command_id or b""
        job_id = ids.job_id(commands.log_id, command_id)
        answered = commands.send(command, key=job_id, timeout_s=timeout_s)
        answer = answered.answer
        if as_json:
            said = {
                name: getattr(answer, name) for name in ("key", "value", "limit", "message") if hasattr(answer, name)
            }
            place_on_log = {"index": answer.control_index, "decided_index": answered.tick_index}
            kind = type(answer).__name__
            print_json({"job_id": job_id, "command_id": command_id.hex(), "answer": kind, **place_on_log, **said})
        refuse_if_turned_away(answered)
        if not as_json:
            print(f"{job_id} recorded at {answer.control_index}, admitted at {answered.tick_index}")
    finally:
        log.close()


def _store_code(folder: Path, place: Place) -> "Code":
    from gangline.cli.output import say
    from gangline.events.bundle import pack
    from gangline.events.objects import open_store
    from gangline.events.types import Code

    bundle = pack(folder, leave_out=[place.home])
    for name in bundle.left_out:
        say(f"left out of the code: {name} (a link that leaves the folder, or no plain file)")
    stored = open_store(place.objects_url).put(bundle.data)
    return Code(
        uri=stored.uri,
        sha256=stored.sha256,
        size_bytes=stored.size_bytes,
        commit=bundle.commit,
        dirty=bundle.dirty,
    )
