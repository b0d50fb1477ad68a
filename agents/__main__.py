"""The agent's process: `python -m gangline.agents --home DIR --log URL`."""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from gangline.agents import inventory
from gangline.agents.agent import Agent, Watched
from gangline.agents.follower import PAUSE_S
from gangline.agents.health import EVERY_S
from gangline.agents.pace import WINDOW_S
from gangline.agents.stores import FULL_PPM, RELEASED_PPM, Limits
from gangline.events.log import Log, LogUnavailable
from gangline.events.open_log import open_log
from gangline.schemas.errors import GanglineError

LEAST_EVERY_S = 0.1
"""Between two looks at the node: more often is a busy loop."""

_log = logging.getLogger("gangline.agents")
"""By its full name, for this module is called `__main__`."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the agent's arguments."""
    arguments = argparse.ArgumentParser("gangline agent", description="Runs gangs on this node.")
    arguments.add_argument("--home", type=Path, required=True, help="folder of this node's runs, shared with nobody")
    arguments.add_argument("--log", required=True, help="URL of the log: sqlite:FOLDER or kafka://HOST:PORT/PREFIX")
    arguments.add_argument("--node-id", help="unique in the cluster; default: the host name")
    arguments.add_argument("--gpus", type=int, help="slots to declare where there are no GPUs, or GPUs to offer")
    arguments.add_argument("--gpu-type", help=f"default: the model that NVML names, or '{inventory.DECLARED}'")
    arguments.add_argument("--pod", default=inventory.DEFAULT_POD, help="nodes with fast links to each other")
    arguments.add_argument("--address", help="where other nodes reach this one; default: that of the default route")
    arguments.add_argument("--check-every", type=float, default=EVERY_S, help="seconds between looks at the node")
    arguments.add_argument("--check-program", type=Path, help="the node is sick if this exits with another code than 0")
    arguments.add_argument(
        "--store", action="append", default=[], help="a store of checkpoints to watch; one agent each"
    )
    arguments.add_argument("--store-full", type=float, default=FULL_PPM / 1e4, help="%% from which one is nearly full")
    arguments.add_argument("--store-released", type=float, default=RELEASED_PPM / 1e4, help="%% at which no longer")
    arguments.add_argument("--pace-window", type=float, default=WINDOW_S, help="seconds over which ranks are compared")
    return arguments


def watched(options: argparse.Namespace) -> Watched:
    """Return what the agent is to look at."""
    return Watched(
        every_s=max(options.check_every, LEAST_EVERY_S),
        program=options.check_program,
        stores=tuple(options.store),
        pace_window_s=max(options.pace_window, LEAST_EVERY_S),
        limits=Limits(full_ppm=round(options.store_full * 1e4), released_ppm=round(options.store_released * 1e4)),
    )


def open_when_there(url: str, stopping: threading.Event) -> Log | None:
    """Open the log, waiting while it cannot be reached; None if told to stop. Raises what else `open_log` raises."""
    away = False
    while not stopping.is_set():
        try:
            return open_log(url)
        except LogUnavailable as error:
            if not away:
                _log.warning("waiting for the log; ranks run on: %s", error)
            away = True
            stopping.wait(PAUSE_S)
    return None


def main() -> int:
    """Run an agent until SIGTERM or SIGINT; ranks outlive it."""
    options = parser().parse_args()
    # The agent's own messages only: librdkafka repeats itself ten times a second while a broker is away.
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(logging.Formatter("gangline agent: %(message)s"))
    _log.addHandler(to_stderr)
    try:
        has = inventory.take(
            node_id=options.node_id,
            address=options.address,
            pod=options.pod,
            gpus=options.gpus,
            gpu_type=options.gpu_type,
        )
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        log = open_when_there(options.log, stopping)
        if log is None:
            return 0
        try:
            agent = Agent(options.home, log, has, watched(options))
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: agent.stop())
            if not stopping.is_set():
                agent.run()
        finally:
            log.close()
    except GanglineError as error:
        sys.stderr.write(f"gangline agent: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
