"""Looks at the notifier of a folder: whether it runs, reads its routes, and is rid of its messages."""

import time
from collections.abc import Iterator
from pathlib import Path

from gangline.agents.notifier.routes import ROUTES_FILE, read_file
from gangline.agents.notifier.status import STATUS_FILE, Failing, left_behind, read_status
from gangline.agents.notifier.store import STORE_FILE
from gangline.cli.examination import Finding, Status
from gangline.cli.place import Place
from gangline.cli.units import MICRO, show_duration
from gangline.schemas.errors import GanglineError

SILENT_S = 60.0
"""It says how it stands every 5 s."""

MANY_TRIES = 3
"""A receiver that is started anew misses one or two."""


def examine_notifier(place: Place) -> Iterator[Finding]:
    """Yield what there is to say of it."""
    file, messages = place.home / STORE_FILE, place.home / "logs" / "notifier.log"
    status = read_status(place.home / STATUS_FILE)
    fault = _fault_of_routes(Path(status.routes) if status is not None else place.home / ROUTES_FILE)
    if not file.exists():
        if messages.exists():
            yield Finding("notifier", "wrong", "it has not begun", fault or f"see {messages}")
        else:
            yield Finding("notifier", "ok", "none has run with this folder")
        return
    left = left_behind(file)
    if left is not None:
        waiting, failing = left
        mend = f"start `gangline up`, or `gangline notifier`; {messages} has its last words"
        yield Finding("notifier", "wrong", f"it does not run, {_messages(waiting)}", fault or mend)
        yield from _targets(failing)
        return
    if status is None or time.time() - status.at_s > SILENT_S:
        for_s = f" for {show_duration(int((time.time() - status.at_s) * MICRO))}" if status is not None else ""
        mend = f"it waits for the log, or hangs: see {messages}"
        yield Finding("notifier", "warning", f"it runs, but has not said how it stands{for_s}", mend)
        return
    if fault is not None:
        yield Finding("notifier", "warning", "it runs with the routes of its start, and cannot start again", fault)
    else:
        yield Finding("notifier", "ok", f"it runs, {_messages(status.waiting)}")
    yield from _targets(status.failing)


def _targets(failing: tuple[Failing, ...]) -> Iterator[Finding]:
    for one in failing:
        if one.tries < MANY_TRIES:
            continue
        ago = show_duration(max(int((time.time() - one.since_s) * MICRO), 0))
        found = f"does not take its messages: {one.waiting} wait, the oldest for {ago}, tried {one.tries} times"
        why = f"; the last time: {one.error}" if one.error else ""
        is_route = one.target.startswith("route ")
        mend = "mend its receiver" if is_route else "a job names it: tell its user, or leave it"
        # A URL of a user's job is his to mend; a route is part of the deployment.
        status: Status = "wrong" if is_route else "warning"
        yield Finding(f"notifier's {one.target}", status, found + why, f"{mend}; messages wait, and are tried again")


def _messages(waiting: int) -> str:
    return f"{waiting} message{'' if waiting == 1 else 's'} wait{'s' if waiting == 1 else ''}"


def _fault_of_routes(path: Path) -> str | None:
    try:
        read_file(path, needed=False)
    except GanglineError as error:
        return f"mend its routes: {error}"
    return None
