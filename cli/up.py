"""`gangline up`: everything on this machine, in the foreground."""

import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.output import print_json, say
from gangline.cli.place import HomeOption, LogOption, Place, SqlOption
from gangline.schemas.errors import GanglineError, NotFound, Refused, TimedOut

if TYPE_CHECKING:
    from gangline.cli.supervisor import Part
    from gangline.events.log import Log

READY_S = 60.0
"""How long everything may take to come up before `up` says what is missing and ends."""

LOOK_S = 0.05
"""How often the parts are looked at while they come up, and their node waited for."""

IDLE_LOOK_S = 0.5
"""How often the parts are looked at then."""

POLICY_WITHIN = 1_000
"""A log with a policy has it near its beginning."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up(
    *,
    gpus: Annotated[
        int | None, typer.Option(help="Slots to declare where there are no GPUs [one a CPU].", min=1)
    ] = None,
    gpu_type: Annotated[str | None, typer.Option(help="The type of the GPUs [as found, or `declared`].")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one document, when all is up.")] = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Run every part here until Ctrl-C; jobs that run then go on, and are taken back later.

    Example: gangline up --gpus 2
    """
    place = Place(home, log=log, sql=sql, must_exist=False)
    _make_home(place)
    with _only_one(place.home):
        place.write_config()
        _check_routes(place)
        is_new = _prepare_log(place)
        _run(place, _parts(place, gpus, gpu_type, is_new=is_new), as_json=json)


def _make_home(place: Place) -> None:
    try:
        for folder in (place.home, place.home / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        if not os.access(place.home, os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(None, "Permission denied")
    except OSError as error:
        raise GanglineError(
            f"{place.home} cannot be written ({error.strerror}): give this user the right to, or name another folder "
            "with --home or $GANGLINE_HOME"
        ) from error


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    path = home / "up.lock"
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise Refused(
                f"gangline already runs in {home} (process {lock.read().strip() or 'unknown'}): use that one, stop it, "
                "or name another folder with --home"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _check_routes(place: Place) -> None:
    """Raise UsageError for a mistake in the routes now; later ones are told, and all but the notifier goes on."""
    from gangline.agents.notifier.routes import ROUTES_FILE, read_routes

    read_routes(place.home / ROUTES_FILE, needed=False)


def _prepare_log(place: Place) -> bool:
    """Make the log if there is none, and give a new one the default policy; return whether it is new."""
    from gangline.events import identity
    from gangline.events.open_log import open_log

    log = open_log(place.log_url, create=True)
    try:
        identity.create(log, actor="gangline up")
        return _give_policy(log)
    finally:
        log.close()


def _give_policy(log: "Log") -> bool:
    """Give a log that has no policy the default one; return whether it had none."""
    from gangline.cli.commands import new_meta
    from gangline.events import codec
    from gangline.events.control import ActivatePolicy
    from gangline.events.log import CONTROL, Entry
    from gangline.events.policy import Policy

    reader = log.reader(CONTROL)
    name = codec.encode(ActivatePolicy(meta=new_meta(), policy=Policy()))
    try:
        for records in reader.read_to_end(POLICY_WITHIN):
            if any(record.value[: codec.HEADER_BYTES] == name[: codec.HEADER_BYTES] for record in records):
                return False
            if reader.position.index >= POLICY_WITHIN:
                return False
    finally:
        reader.close()
    log.append(CONTROL, [Entry(b"policy", name)])
    return True


def _parts(place: Place, gpus: int | None, gpu_type: str | None, *, is_new: bool) -> "list[Part]":
    from gangline.agents.inventory import installed_gpus
    from gangline.cli.supervisor import Part

    if gpus is None and not (gpu_type != "declared" and installed_gpus()[1]):
        gpus = os.cpu_count() or 1
        say(f"there are no GPUs here: declaring {gpus} slots, one a CPU (--gpus N for another number)")
    where = ["--home", str(place.home), "--log", place.log_url]
    agent = ["--node-id", node_id(), "--address", "127.0.0.1", "--store", str(place.home / "checkpoints")]
    agent += [] if gpus is None else ["--gpus", str(gpus)]
    agent += [] if gpu_type is None else ["--gpu-type", gpu_type]
    # Of a new log everything is told, though its first job may start sooner than the notifier does.
    notifier = ["--from", "0"] if is_new else []
    arguments = {
        "scheduler": ["gangline.scheduler", *where, "--open-term"],
        "projector": ["gangline.projections", *where, "--sql", place.sql_url],
        "agent": ["gangline.agents", *where, *agent],
        "notifier": ["gangline.agents.notifier", *where, *notifier],
    }
    # Its messages wait in the log and in its outbox, so no job has to stop for want of it.
    without = {"notifier": "nobody is told what becomes of jobs until it runs"}
    return [
        Part(name, words, place.home / "logs" / f"{name}.log", without=without.get(name, ""))
        for name, words in arguments.items()
    ]


def node_id() -> str:
    """Return what this machine is called among nodes."""
    return socket.gethostname() or "localhost"


def _run(place: Place, parts: "list[Part]", *, as_json: bool) -> None:
    from gangline.cli.supervisor import stop

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.set())
    began_us = time.time_ns() // 1000
    try:
        for part in parts:
            part.start()
        node = _wait_ready(place, parts, stopping, began_us)
        if node is not None:
            _tell(place, node, as_json=as_json)
        while not stopping.wait(IDLE_LOOK_S):
            for part in parts:
                part.look()
    finally:
        say("stopping")
        stop(parts)
        for line in what_goes_on(place):
            say(line)


def _wait_ready(place: Place, parts: "list[Part]", stopping: threading.Event, began_us: int) -> dict[str, Any] | None:
    """Return the node once it is registered and projected, None if told to stop before. Raises TimedOut, GaveUp."""
    deadline_s = time.monotonic() + READY_S
    while not stopping.wait(LOOK_S):
        for part in parts:
            part.look()
        node = _node(place)
        if node is not None and node["registered_at_us"] >= began_us:
            return node
        if time.monotonic() > deadline_s:
            words = "\n".join(f"{part.name}: {part.last_words()}" for part in parts)
            raise TimedOut(f"the node is not registered after {READY_S:g} s. The parts say:\n{words}")
    return None


def _tell(place: Place, node: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        named = {name: node[name] for name in ("node_id", "gpu_count", "gpu_type")}
        print_json({"home": str(place.home), "log": place.log_url, "sql": place.sql_url, **named})
    else:
        gpus = f"{node['gpu_count']} GPUs ({node['gpu_type']})"
        print(f"gangline is up in {place.home}: node {node['node_id']} with {gpus}. Try: gangline submit -- COMMAND")
    sys.stdout.flush()


def _node(place: Place) -> dict[str, Any] | None:
    from gangline.cli.reads import tables
    from gangline.projections.database import DatabaseUnavailable
    from gangline.projections.queries import list_nodes

    try:
        with tables(place, None) as connection:
            return next((node for node in list_nodes(connection) if node["node_id"] == node_id()), None)
    except (NotFound, DatabaseUnavailable):
        return None  # the projector waits for it, too, and says so


def what_goes_on(place: Place) -> list[str]:
    """Return, in words, what runs on while gangline does not."""
    from gangline.cli.reads import tables
    from gangline.projections.queries import list_jobs

    try:
        with tables(place, None) as connection:
            jobs = list_jobs(connection, states=("running", "stopping"))
    except GanglineError:
        return ["stopped"]
    if not jobs:
        return ["stopped; no job is running"]
    named = ", ".join(job["job_id"] for job in jobs[:5]) + (", ..." if len(jobs) > 5 else "")  # noqa: PLR2004
    many = "a running job goes on" if len(jobs) == 1 else f"{len(jobs)} running jobs go on"
    return [f"stopped; {many} ({named}): `gangline up` takes {'it' if len(jobs) == 1 else 'them'} back"]
