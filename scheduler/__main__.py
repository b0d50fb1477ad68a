"""The scheduler's process: `python -m gangline.scheduler --home DIR --log URL`."""

import argparse
import gc
import logging
import signal
import sys
import threading
import time
import traceback
from contextlib import closing
from pathlib import Path
from types import FrameType

from gangline.events import identity
from gangline.events.ids import uuid7
from gangline.events.log import Log, LogFull, LogUnavailable
from gangline.events.open_log import open_log
from gangline.scheduler.code_store import code_digest, wheel_digest
from gangline.scheduler.errors import Halted
from gangline.scheduler.follow_loop import Follower
from gangline.scheduler.loop import Loop
from gangline.scheduler.snapshot_store import SnapshotStore
from gangline.schemas.errors import GanglineError, Refused

RETRY_S = 1.0
"""Pause before the loop starts again after the log did not answer, or had no room."""

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
        if options.boundary:
            _write_boundary(options.log, options.home)
        else:
            _run(options.log, options.home, stopping, open_term=options.open_term)
    except GanglineError as error:
        return _last_word(str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - going on would make a silent divergence, whatever it is
        return _last_word(f"stopped on {error!r}, which is a bug: please report {_keep_traceback(options.home)}", 1)
    return 0


def _last_word(message: str, exit_code: int) -> int:
    print(f"gangline scheduler: {message}", file=sys.stderr)  # noqa: T201 - the program's last word
    return exit_code


def _keep_traceback(home: Path) -> str:
    """Keep the traceback in a file of `home`, and return where."""
    text = traceback.format_exc()
    path = home / f"scheduler-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.traceback"
    try:
        path.write_text(text)
    except OSError:
        return text.strip().replace("\n", " | ")
    return str(path)


def _store(log: Log, home: Path) -> SnapshotStore:
    return SnapshotStore(home / "snapshots", identity.log_id(log))


def _write_boundary(url: str, home: Path) -> None:
    with closing(open_log(url)) as log, closing(Follower(log, _store(log, home), code_digest())) as follower:
        if follower.foreign:
            raise Refused(
                "the current term belongs to other code than this: run --boundary with the version that opened it "
                f"(code {follower.term_code[:12] or 'of no term yet'})"
            )
        if follower.terms.decided < 0:
            raise Halted("nothing is decided yet, so there is no boundary to write; a new term can open without one")
        follower.save_snapshot()
        logger.info(
            "the boundary of term %d at control index %d is written", follower.terms.term, follower.terms.decided
        )


def _run(url: str, home: Path, stopping: threading.Event, *, open_term: bool) -> None:
    ticker = uuid7().hex()
    while not stopping.is_set():
        try:
            with closing(open_log(url)) as log:
                loop = Loop(
                    log,
                    _store(log, home),
                    code_digest=code_digest(),
                    wheel=wheel_digest(),
                    open_term=open_term,
                    ticker=ticker,
                )
                _step(loop, stopping)
        except (LogUnavailable, LogFull) as error:
            logger.warning("%s; starting again in %.0f s", error, RETRY_S)
            stopping.wait(RETRY_S)


def _step(loop: Loop, stopping: threading.Event) -> None:
    """Step until it is time to stop, and stop."""
    # The state lives as long as the process: the collector need not walk it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    with closing(loop):
        while not stopping.is_set():
            loop.step()
        loop.stop()


if __name__ == "__main__":
    sys.exit(main())
