"""Sends one command for a user, and prints its answer."""

from typing import TYPE_CHECKING

from gangline.cli.place import Place

if TYPE_CHECKING:
    from gangline.cli.commands import Answered
    from gangline.events.types import Event


def send(place: Place, command: "Event", *, key: str, timeout_s: float) -> "Answered":
    """Send a command and return its answer. Raises TimedOut if there is none in time."""
    from gangline.cli.commands import Commands

    log = place.open_log()
    try:
        commands = Commands(log, place.home / "snapshots")
        try:
            return commands.send(command, key=key, timeout_s=timeout_s)
        finally:
            commands.close()
    finally:
        log.close()


def tell(answered: "Answered", subject: dict[str, object], done: str, *, as_json: bool) -> None:
    """Print an answer: one document of JSON, or one line. Raises Refused for a no."""
    from gangline.cli.commands import refuse_if_turned_away
    from gangline.cli.output import print_json, printable

    answer = answered.answer
    if as_json:
        place_on_log = {"index": answer.control_index, "decided_index": answered.tick_index}
        message = getattr(answer, "message", None)
        print_json({**subject, "answer": type(answer).__name__, "message": message, **place_on_log})
    refuse_if_turned_away(answered)
    if not as_json:
        print(printable(f"{done.format(index=answer.control_index)}"))
