"""The notifier's process: `python -m gangline.agents.notifier --home DIR --log URL`."""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from gangline.agents.notifier.notifier import Notifier
from gangline.agents.notifier.routes import ROUTES_FILE, read_routes
from gangline.agents.notifier.status import STATUS_FILE, Failing, Status, write_status
from gangline.agents.notifier.store import STORE_FILE, Store
from gangline.events.identity import LogAbsent
from gangline.events.log import LogUnavailable
from gangline.events.open_log import open_log
from gangline.schemas.errors import GanglineError

POLL_S = 0.5
"""How long one wait for a round lasts, and so how soon a signal is heeded at the latest."""

AWAY_POLL_S = 1.0
"""Between looks at a log that is away."""

_log = logging.getLogger("gangline notifier")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the notifier's arguments."""
    arguments = argparse.ArgumentParser("gangline notifier", description="Tells people what becomes of their jobs.")
    arguments.add_argument("--home", type=Path, required=True, help="gangline's folder")
    arguments.add_argument("--log", required=True, help="URL of the log")
    arguments.add_argument("--routes", type=Path, help=f"who is told what [{ROUTES_FILE} in the folder]")
    arguments.add_argument("--from", type=int, dest="first_index", help="the first time: tell what is from here on")
    arguments.add_argument("--check", action="store_true", help="say whether the routes are right, and exit")
    return arguments


def main() -> int:
    """Tell until SIGTERM or SIGINT; return the exit code."""
    options = parser().parse_args()
    logging.basicConfig(format="%(name)s: %(message)s")
    stopping = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stopping.set())
    try:
        _run(options, stopping)
    except GanglineError as error:
        _log.error("%s", error)
        return error.exit_code
    return 0


def _run(options: argparse.Namespace, stopping: threading.Event) -> None:
    path = options.routes or options.home / ROUTES_FILE
    routes = read_routes(path, needed=options.routes is not None or options.check)
    if options.check:
        count = len(routes.route)
        sys.stdout.write(f"{path}: {count} route{'' if count == 1 else 's'}, all well\n")
        return
    store = Store(options.home / STORE_FILE)
    notifier: Notifier | None = None
    away = False
    try:
        while not stopping.is_set():
            try:
                if notifier is None:
                    notifier = Notifier(
                        open_log(options.log),
                        store,
                        routes,
                        first_index=options.first_index,
                        tell=partial(_tell, options.home / STATUS_FILE, path.absolute()),
                    )
                notifier.step(timeout_s=POLL_S)
                if away:
                    _log.warning("the log is there again")
                away = False
            except (LogUnavailable, LogAbsent) as error:
                if not away:
                    _log.warning("waiting for the log: %s", error)
                away = True
                if notifier is None:
                    stopping.wait(AWAY_POLL_S)
                else:
                    notifier.deliver(timeout_s=AWAY_POLL_S)
    finally:
        if notifier is not None:
            notifier.close()
        store.close()


def _tell(path: Path, routes: Path, waiting: int, failing: tuple[Failing, ...]) -> None:
    status = Status(at_s=time.time(), pid=os.getpid(), routes=str(routes), waiting=waiting, failing=failing)
    try:
        write_status(path, status)
    except OSError as error:
        # It helps whoever looks, and what looks finds it old; messages go on.
        _log.warning("%s cannot be written: %s", path, error.strerror)


if __name__ == "__main__":
    code = main()
    # A delivery that hangs has a thread that the interpreter would wait for; its message is sent again anyway.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
