"""Sends facts to `control`, in order, from a thread of its own; while the log is away they wait and are retried.

The box itself is in memory. What it holds follows from the run folders, so an agent that dies with unsent facts finds
them there again, and a box that is full refuses: its caller comes back with the same fact later.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gangline.events import codec
from gangline.events.log import CONTROL, Entry, Log, LogError, LogFull, LogUnavailable
from gangline.events.types import Event

MAX_WAITING = 10_000
"""Facts that wait at most; a node of 8 GPUs has a few dozen in a day without the log."""

MAX_BATCH = 500
"""Facts that one append carries at most."""

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
"""Pauses between attempts double from the first to the longest."""

_log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    entry: Entry
    acknowledged: Callable[[], None] | None


class Outbox:
    """Facts on their way to the log."""

    def __init__(self, log: Log, on_failure: Callable[[LogError], None]) -> None:
        self._log = log
        self._on_failure = on_failure
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, key: str, event: Event, acknowledged: Callable[[], None] | None = None) -> bool:
        """Send this after all that was put before; `acknowledged` is called, on another thread, once the log has it.

        Returns False, with nothing taken, while MAX_WAITING facts wait.
        """
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting.append(_Waiting(Entry(key.encode(), codec.encode(event)), acknowledged))
            self._changed.notify_all()
        return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is sent; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout_s)

    def close(self) -> None:
        """Stop sending."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
                batch = [self._waiting[i] for i in range(min(len(self._waiting), MAX_BATCH))]
            if not batch:
                continue
            try:
                self._log.append(CONTROL, [waiting.entry for waiting in batch])
            except (LogUnavailable, LogFull) as error:
                if pause_s == FIRST_PAUSE_S:
                    _log.warning("facts wait, training runs on: %s", error)
                self._closing.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            except LogError as error:
                self._on_failure(error)
                return
            if pause_s != FIRST_PAUSE_S:
                _log.warning("the log takes facts again")
                pause_s = FIRST_PAUSE_S
            for waiting in batch:
                self._acknowledge(waiting)
            with self._changed:
                for _ in batch:
                    self._waiting.popleft()
                self._changed.notify_all()

    def _acknowledge(self, waiting: _Waiting) -> None:
        """Let the sender note that the log has its fact; where it cannot, the next agent sends it again."""
        if waiting.acknowledged is not None:
            try:
                waiting.acknowledged()
            except OSError as error:
                _log.warning("the log has a fact, but that cannot be noted: %s", error)
