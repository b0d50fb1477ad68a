"""The scheduler's process: `python -m gangline.scheduler --home DIR --log URL`."""

import argparse
import gc
import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from gangline.events import identity
from gangline.events.log import Log, LogUnavailable
from gangline.events.open_log import open_log
from gangline.scheduler.code_store import code_digest, wheel_digest
from gangline.scheduler.errors import Halted
from gangline.scheduler.loop import Loop
from gangline.scheduler.snapshot_store import SnapshotStore
from gangline.schemas.errors import GanglineError, Refused

RETRY_S = 1.0
"""Pause before the loop starts again after the log did not answer."""

logger = logging.getLogger("gangline.scheduler")


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(prog="gangline scheduler", description="Decide rounds, or stand by to.")
    parser.add_argument("--home", type=Path, required=True, help="folder of snapshots")
    parser.add_argument("--log", required=True, help="URL of the log")
    parser.add_argument("--open-term", action="store_true", help="open a term for this code where it differs")
    parser.add_argument("--boundary", action="store_true", help="write the boundary of the current term, and exit")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s scheduler: %(message)s", stream=sys.stderr)
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        log = open_log(options.log)
        try:
            if options.boundary:
                _write_boundary(log, options.home)
            else:
                _run(log, options.home, stopping, open_term=options.open_term)
        finally:
            log.close()
    except GanglineError as error:
        print(f"gangline scheduler: {error}", file=sys.stderr)  # noqa: T201 - the program's last word
        return error.exit_code
    return 0


def _loop(log: Log, home: Path, *, open_term: bool) -> Loop:
    store = SnapshotStore(home / "snapshots", identity.log_id(log))
    return Loop(log, store, code_digest=code_digest(), wheel=wheel_digest(), open_term=open_term)


def _write_boundary(log: Log, home: Path) -> None:
    follower = _loop(log, home, open_term=False).follower
    if follower.stale or follower.term_code != code_digest():
        raise Refused(
            "the current term belongs to other code than this: run --boundary with the version that opened it "
            f"(code {follower.term_code[:12] or 'of no term yet'})"
        )
    if follower.terms.decided < 0:
        raise Halted("nothing is decided yet, so there is no boundary to write; a new term can open without one")
    follower.save_snapshot()
    logger.info("the boundary of term %d at control index %d is written", follower.terms.term, follower.terms.decided)


def _run(log: Log, home: Path, stopping: threading.Event, *, open_term: bool) -> None:
    while not stopping.is_set():
        try:
            loop = _loop(log, home, open_term=open_term)
            # The state lives as long as the process: the collector need not walk it again and again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)
            while not stopping.is_set():
                loop.step()
            loop.stop()
        except LogUnavailable as error:
            logger.warning("%s; starting again in %.0f s", error, RETRY_S)
            stopping.wait(RETRY_S)


if __name__ == "__main__":
    sys.exit(main())
