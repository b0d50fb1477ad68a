"""Follows `decisions` from a thread of its own, and offers the net result once it has caught up."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from gangline.agents.bindings import Binding, Bindings, fold, newest_snapshot
from gangline.agents.run_folder import AttemptKey
from gangline.events import identity
from gangline.events.identity import LogAbsent
from gangline.events.log import DECISIONS, Log, LogReplaced, LogUnavailable, Reader
from gangline.schemas.errors import GanglineError
from gangline.schemas.manifest import write_durably

READ_TIMEOUT_S = 0.5
"""How long one read waits for a record, and so how soon a closing agent is noticed."""

PAUSE_S = 1.0
"""Between attempts to reach a log that is away, or not made yet."""

_log = logging.getLogger(__name__)


class Follower:
    """Reads `decisions`. `live` is None until every record that was there at the start has been folded."""

    def __init__(
        self,
        log: Log,
        node_id: str,
        *,
        home: Path,
        identity_file: Path,
        on_change: Callable[[], None],
        on_failure: Callable[[GanglineError], None],
    ) -> None:
        self.live: dict[AttemptKey, Binding] | None = None
        self.check_index: int | None = None
        """The last command that asked to examine the node."""
        self._log = log
        self._node_id = node_id
        self._home = home
        self._identity_file = identity_file
        self._on_change = on_change
        self._on_failure = on_failure
        self._bindings: Bindings | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading, and wait until it has stopped."""
        self._closing.set()
        self._thread.join(2 * READ_TIMEOUT_S)

    def _run(self) -> None:
        away = False
        while not self._closing.is_set():
            reader: Reader | None = None
            try:
                if self._bindings is None:
                    self._bindings = self._start_point()
                reader = self._log.reader(DECISIONS, self._bindings.position)
                if away:
                    _log.warning("the log is there again")
                away = False
                self._follow(reader, self._bindings)
            except (LogUnavailable, LogAbsent) as error:
                if not away:
                    _log.warning("waiting for the log: %s", error)
                away = True
                self._closing.wait(PAUSE_S)
            except GanglineError as error:
                self._on_failure(error)
                return
            except OSError as error:
                self._on_failure(GanglineError(f"cannot follow the log: {error}"))
                return
            finally:
                if reader is not None:
                    reader.close()

    def _start_point(self) -> Bindings:
        log_id = identity.log_id(self._log)
        if not self._identity_file.exists():
            write_durably(self._identity_file, log_id.encode())
        known = self._identity_file.read_text("ascii")
        if known != log_id:
            raise LogReplaced(
                f"this is log {log_id}, but {self._identity_file.parent} is the folder of an agent of log {known}: "
                "give the agent the log that it belongs to, or another --home or --node-id"
            )
        return newest_snapshot(self._home / "snapshots" / log_id, log_id, self._node_id)

    def _follow(self, reader: Reader, bindings: Bindings) -> None:
        caught_up = self.live is not None
        if not caught_up:
            for records in reader.read_to_end():
                for record in records:
                    bindings = self._bindings = fold(bindings, record)
                if self._closing.is_set():
                    return
            self._offer(bindings)
        while not self._closing.is_set():
            before = bindings
            for record in reader.read(timeout_s=READ_TIMEOUT_S):
                bindings = self._bindings = fold(bindings, record)
            if bindings.live is not before.live or bindings.check_index != before.check_index:
                self._offer(bindings)

    def _offer(self, bindings: Bindings) -> None:
        self.live = dict(bindings.live)
        self.check_index = bindings.check_index
        self._on_change()
