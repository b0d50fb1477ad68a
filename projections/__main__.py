"""Runs the worker that feeds the tables: `python -m gangline.projections --home DIR --log URL --sql URL`."""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from gangline.events.log import LogUnavailable
from gangline.events.open_log import open_log
from gangline.projections.database import DatabaseUnavailable, open_database
from gangline.projections.projector import Projector
from gangline.schemas.errors import GanglineError

_log = logging.getLogger("gangline projector")

POLL_S = 0.5
"""How long one wait for a round lasts, and so how soon a signal is heeded at the latest."""

RETRY_S = (0.1, 0.3, 1.0, 3.0)
"""The pauses while the database or the log does not answer; the last one repeats until it does."""


def main() -> int:
    """Project until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gangline.projections", description=__doc__)
    parser.add_argument("--home", required=True, type=Path, help="gangline's folder")
    parser.add_argument("--log", required=True, help="URL of the log")
    parser.add_argument("--sql", required=True, help="URL of the database")
    parser.add_argument("--rebuild", action="store_true", help="drop the tables and compute them anew")
    parser.add_argument("--once", action="store_true", help="project what is decided now, and exit")
    options = parser.parse_args()
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
    log = open_log(options.log)
    engine = open_database(options.sql, create=True)
    projector: Projector | None = None
    failures = 0
    try:
        while not stopping.is_set():
            try:
                projector = projector or Projector(log, engine, rebuild=options.rebuild)
                if options.once:
                    projector.catch_up()
                    return
                projector.step(timeout_s=POLL_S)
                failures = 0
            except (DatabaseUnavailable, LogUnavailable) as error:
                if options.once:
                    raise
                if failures == 0:
                    _log.warning("waiting for what does not answer: %s", error)
                stopping.wait(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
    finally:
        if projector is not None:
            projector.close()
        engine.dispose()
        log.close()


if __name__ == "__main__":
    sys.exit(main())
