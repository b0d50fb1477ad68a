"""`gangline events tail`: the records of the log themselves."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gangline.cli.output import print_json, printable
from gangline.cli.place import HomeOption, LogOption, Place, seconds
from gangline.schemas.errors import NotFound, TimedOut

if TYPE_CHECKING:
    from gangline.events.log import Log, Reader, Record

SHOWN = 20
"""How many of the last records are shown unless a beginning is named."""

POLL_S = 1.0
"""How long one wait for a record lasts."""

MAX_TEXT = 160
"""A record's fields are shown so far; --json shows them whole."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Look at the log.")
    group.command("tail")(tail)
    group.callback()(lambda: None)
    app.add_typer(group, name="events")


def tail(
    *,
    start: Annotated[
        int | None, typer.Option("--from", metavar="INDEX", help="Begin here [the last 20].", min=0)
    ] = None,
    topic: Annotated[Literal["control", "decisions"], typer.Option(help="Which part of the log.")] = "control",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as records come.")] = False,
    after: Annotated[
        int | None, typer.Option("--after", metavar="INDEX", help="Wait until the topic has this index.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that --after waits.", callback=seconds)] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one record a line.")] = False,
    home: HomeOption = None,
    log: LogOption = None,
) -> None:
    """Print records of the log in order: commands, facts and ticks of `control`, or terms and rounds of `decisions`.

    Example: gangline events tail --from 0 --json
    """
    from gangline.events import identity

    opened = Place(home, log=log).open_log()
    try:
        identity.log_id(opened)
        # First wait, for `--from` may name what --after waits for.
        if after is not None:
            _wait(opened, topic, after, timeout)
        reader = _reader(opened, topic, start or 0)
        found = _to_end(reader, start or 0)
        for record in deque(found, maxlen=SHOWN) if start is None else found:
            _print(record, as_json=json)
        sys.stdout.flush()
        while follow:
            for record in reader.read(timeout_s=POLL_S):
                _print(record, as_json=json)
            sys.stdout.flush()
    finally:
        opened.close()


def _reader(log: "Log", topic: str, index: int) -> "Reader":
    from gangline.events.log import START, LogCut, Position
    from gangline.events.sqlite import SqliteLog

    # Where offsets have gaps, an index is found by counting from the beginning.
    try:
        return log.reader(topic, Position(index, index) if isinstance(log, SqliteLog) else START)
    except LogCut:
        raise NotFound(
            f"'{topic}' has no index {index} yet: begin earlier, or wait for it with --after {index}"
        ) from None


def _to_end(reader: "Reader", begins: int) -> "Iterator[Record]":
    for records in reader.read_to_end():
        yield from (record for record in records if record.index >= begins)


def _wait(log: "Log", topic: str, index: int, timeout_s: float) -> None:
    reader = log.reader(topic)
    deadline = time.monotonic() + timeout_s
    while reader.position.index <= index:
        left = deadline - time.monotonic()
        if not reader.read(timeout_s=max(0.0, min(POLL_S, left))) and left <= 0:
            raise TimedOut(
                f"'{topic}' ends at {reader.position.index - 1}, not yet at {index}: wait longer with --timeout"
            )
    reader.close()


def _print(record: "Record", *, as_json: bool) -> None:
    from gangline.cli.units import show_time

    shown = describe(record)
    if as_json:
        print_json(shown)
        return
    fields = " ".join(f"{name}={_short(value)}" for name, value in shown["fields"].items())
    time_shown = show_time(shown["at_us"]) if shown["at_us"] is not None else "-"
    text = f"{shown['index']:>8}  {time_shown}  {shown['kind']:<18}  {shown['actor'] or '-':<14}  {fields}"
    _print_line(text)
    for decision in shown.get("decisions", ()):
        fields = " ".join(f"{name}={_short(value)}" for name, value in decision["fields"].items())
        text = f"{'':>8}    {decision['kind']:<22}  {fields}"
        _print_line(text)


def _print_line(text: str) -> None:
    text = printable(text)
    print(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")


def describe(record: "Record") -> dict[str, Any]:
    """Return a record for people and JSON: bytes as hex, a round's decisions decoded.

    Raises LogTooNew for a record of a newer version; one that cannot be decoded is shown as such.
    """
    from gangline.events import codec
    from gangline.events.decisions import RoundDecided

    base: dict[str, Any] = {"index": record.index, "offset": record.offset, "key": record.key.decode(errors="replace")}
    try:
        event = codec.decode(record.value)
    except codec.Undecodable as error:
        nothing = {"at_us": None, "actor": None, "meta": None}
        return base | nothing | {"kind": "Undecodable", "fields": {"error": str(error), "value": record.value.hex()}}
    fields = _plain(event)
    meta = fields.pop("meta")
    base |= {"kind": type(event).__name__, "at_us": meta["at_us"], "actor": meta["actor"], "meta": meta}
    if isinstance(event, RoundDecided):
        fields["decisions"] = len(event.decisions)
        decisions = [codec.decode(value) for value in event.decisions]
        base["decisions"] = [{"kind": type(one).__name__, "fields": _plain(one)} for one in decisions]
    return base | {"fields": fields}


def _plain(value: object) -> Any:  # noqa: ANN401 - a mapping that follows the event
    import msgspec

    def plain(part: object) -> object:
        if isinstance(part, bytes):
            return part.hex()
        if isinstance(part, dict):
            return {name: plain(inner) for name, inner in part.items()}
        if isinstance(part, list | tuple):
            return [plain(inner) for inner in part]
        return part

    return plain(msgspec.to_builtins(value, builtin_types=(bytes,)))


def _short(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
