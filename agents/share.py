"""One share of a gang on this node, from its launch to the last fact about it."""

import contextlib
import logging
import subprocess
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import msgspec

from gangline.agents.bindings import Binding
from gangline.agents.checkpoints import CheckpointWatch
from gangline.agents.facts import Facts, now_us
from gangline.agents.idle import IdleWatch
from gangline.agents.inventory import Inventory
from gangline.agents.launch import LaunchRefused, prepare
from gangline.agents.outbox import Outbox
from gangline.agents.pace import WINDOW_S, PaceWatch
from gangline.agents.processes import sweep
from gangline.agents.run_folder import AttemptKey, Failure, Plan, RunFolder, ShimRecord
from gangline.events.types import Blame, Event, RankExit, Value
from gangline.schemas.launch import Ending, write_ending

SCAN_S = 0.5
"""How often a running attempt's folders are searched for checkpoints."""

LOST_EXIT_CODE = -9
"""What is reported for a rank whose end nobody saw: the kernel kills it with its shim, and so does a reboot."""

_ERROR_TAIL_CHARACTERS = 2000

_log = logging.getLogger(__name__)


class Crew(Value, frozen=True, kw_only=True):
    """What shares of one agent work with. `launches` and `scans` are thread pools for what may take long."""

    home: Path
    inventory: Inventory
    facts: Facts
    outbox: Outbox
    launches: Executor
    scans: Executor
    pace_window_s: float = WINDOW_S


class LocalShare:
    """Launches, watches, stops and reports; `poll` moves it on, and belongs to one thread."""

    def __init__(self, key: AttemptKey, folder: RunFolder, crew: Crew) -> None:
        self.key = key
        self.over = False
        """Whether the last fact is on its way to the log."""
        self.trouble = ""
        """What kept it from moving on last, so that this is said once."""
        self._folder = folder
        self._crew = crew
        self._cause: str | None = None
        self._plan: Plan | None = None
        self._shim: subprocess.Popen[bytes] | None = None
        self._launch: Future[subprocess.Popen[bytes] | None] | None = None
        self._watch: CheckpointWatch | None = None
        self._pace: PaceWatch | None = None
        self._idle: IdleWatch | None = None
        self._scan: Future[None] | None = None
        self._finish: Future[bool] | None = None
        self._next_scan_s = 0.0
        self._stop_grace_us: int | None = None
        self._ordered_grace_us: int | None = None
        """The stop that the shim has been told of."""
        self._told_end_us: int | None = None
        self._started: ShimRecord | None = None
        self._failure: Failure | None = None
        self._gone_seen = False
        self._exits: dict[int, RankExit] = {}
        self._told_started = False
        self._told_exits: set[int] = set()

    def launch(self, binding: Binding) -> None:
        """Begin to launch the share of a binding."""
        self._cause = binding.cause
        self._launch = self._crew.launches.submit(self._prepare_and_start, binding)

    def adopt(self) -> bool:
        """Take over what an earlier agent left; return False if nothing of it ever ran."""
        try:
            self._failure = self._folder.failure()
            self._plan = self._folder.plan()
        except msgspec.MsgspecError as error:
            # It may have run, and may not run twice: what still does is stopped, and the attempt has failed.
            reason = f"the run folder {self._folder.path} is damaged: {error}"
            self._failure = Failure(reason=reason, retryable=True, at_us=now_us(), blame="node")
            self._stop_grace_us = 0
        if self._plan is None:
            return self._failure is not None
        self._begin_watch(self._plan)
        return True

    def stop(self, grace_us: int) -> None:
        """Stop the ranks within `grace_us`, or do not start them."""
        self._stop_grace_us = grace_us

    def warn(self, ends_at_us: int) -> None:
        """Tell the ranks, once they have a run folder, that they will be stopped then. Raises OSError."""
        if self._plan is not None and ends_at_us != self._told_end_us:
            write_ending(self._folder.ending, Ending(reason="max_runtime", ends_at_us=ends_at_us))
            self._told_end_us = ends_at_us

    def never_launched(self) -> None:
        """Report a share gone that was told to stop before it was launched."""
        self.over = self._put_gone()

    def poll(self) -> None:
        """Report what is new, and move on."""
        if self.over:
            return
        if self._launch is not None:
            self._poll_launch(self._launch)
        elif self._plan is None:
            if self._shim_lives():  # its plan is damaged
                self._order_stop()
            else:
                self.over = self._put_failure() if self._failure is not None else self._put_gone()
        elif self._finish is not None:
            self._poll_finish(self._finish)
        else:
            self._poll_shim()

    def _prepare_and_start(self, binding: Binding) -> subprocess.Popen[bytes] | None:
        """Launch on a thread of its own; None if it failed, or was stopped before it began."""
        try:
            self._folder.make_afresh()
            plan = prepare(binding, self._crew.inventory, self._folder, self._crew.home)
            if self._stop_grace_us is not None:
                return None
            started = self._folder.start(plan)
        except LaunchRefused as error:
            self._failure = Failure(reason=str(error), retryable=error.retryable, at_us=now_us(), blame=error.blame)
        except OSError as error:
            reason = f"the share cannot be prepared in {self._folder.path}: {error}; free space, or mend that folder"
            self._failure = Failure(reason=reason, retryable=True, at_us=now_us(), blame="node")
        else:
            self._plan = plan
            return started
        with contextlib.suppress(OSError):  # then a restarted agent launches once more, which is right, too
            self._folder.fail(self._failure)
        return None

    def _poll_launch(self, launch: "Future[subprocess.Popen[bytes] | None]") -> None:
        if not launch.done():
            return
        self._launch = None
        try:
            self._shim = launch.result()
        except Exception as error:  # noqa: BLE001 - a bug must not stop the other shares, nor leave this one waiting
            _log.exception("the launch of %s broke", self.key.folder_name)
            self._failure = Failure(reason=f"the agent's launch broke: {error!r}", retryable=True, at_us=now_us())
        if self._plan is not None:
            self._begin_watch(self._plan)

    def _begin_watch(self, plan: Plan) -> None:
        self._cause = plan.cause
        checkpoints = None if plan.checkpoints is None else Path(plan.checkpoints)
        self._watch = CheckpointWatch(self.key, self._folder, checkpoints, self._crew.facts, self._crew.outbox)
        crew = self._crew
        self._pace = PaceWatch(
            self.key,
            plan,
            spool=self._folder.spool,
            node_id=crew.inventory.node_id,
            window_s=crew.pace_window_s,
            facts=crew.facts,
            outbox=crew.outbox,
        )
        if plan.idle_timeout_us is not None:
            self._idle = IdleWatch(self.key, plan, self._crew.facts, self._crew.outbox)

    def _poll_shim(self) -> None:
        # First this, then the records: of a shim that is gone they are complete.
        lives = self._shim_lives()
        for record in self._folder.new_records():
            self._note(record)
        self._report()
        if lives:
            self._order_stop()
            self._scan_at_times()
            if self._idle is not None and self._started is not None:
                self._idle.poll(self._started.pid)
            return
        if self._scan is None or self._scan.done():
            self._finish = self._crew.scans.submit(self._clear_up)

    def _shim_lives(self) -> bool:
        """Whether the shim runs: asked of the kernel where it is a child, for its job may have deleted the lock."""
        return self._folder.shim_lives() if self._shim is None else self._shim.poll() is None

    def _note(self, record: ShimRecord) -> None:
        match record.event:
            case "started":
                self._started = record
            case "exited":
                self._exits[record.rank] = RankExit(rank=record.rank, exit_code=record.exit_code)
            case "failed":
                blame: Blame = "node" if record.retryable else "job"  # no process or memory left, or no such program
                self._failure = Failure(
                    reason=record.reason, retryable=record.retryable, at_us=record.at_us, blame=blame
                )
            case "gone":
                self._gone_seen = True

    def _report(self) -> None:
        """Report the start, and exits as they come; those of a launch that failed say nothing."""
        if self._started is None:
            return
        crew = self._crew
        if not self._told_started:
            event = crew.facts.started(self.key, str(self._folder.path), cause=self._cause, at_us=self._started.at_us)
            self._told_started = crew.outbox.put(self.key.job_id, event)
        new = tuple(self._exits[rank] for rank in sorted(self._exits.keys() - self._told_exits))
        if (
            new
            and self._told_started
            and crew.outbox.put(self.key.job_id, crew.facts.exited(self.key, new, gone=False))
        ):
            self._told_exits.update(exit_.rank for exit_ in new)

    def _order_stop(self) -> None:
        """Tell the shim of the stop that was asked for; where the folder takes no order, by SIGTERM."""
        if self._stop_grace_us is None or self._stop_grace_us == self._ordered_grace_us:
            return
        try:
            self._folder.order_stop(self._stop_grace_us)
        except OSError as error:
            # Often it is the job that has filled the disk. SIGTERM gives it the grace that it was submitted with.
            if self._shim is not None:
                self._shim.terminate()
            elif self._started is not None:
                self._folder.terminate_shim(self._started.pid)
            else:
                raise
            _log.warning("attempt %d of %s is stopped by SIGTERM: %s", self.key.attempt, self.key.job_id, error)
        self._ordered_grace_us = self._stop_grace_us

    def _scan_at_times(self) -> None:
        now_s = time.monotonic()
        if self._watch is not None and now_s >= self._next_scan_s and (self._scan is None or self._scan.done()):
            self._next_scan_s = now_s + SCAN_S
            self._scan = self._crew.scans.submit(self._look_into_folders, self._watch, self._pace)

    @staticmethod
    def _look_into_folders(watch: CheckpointWatch, pace: PaceWatch | None) -> None:
        watch.scan()
        if pace is not None:
            pace.look()

    def _clear_up(self) -> bool:
        """Sweep what a dead shim left and look for checkpoints a last time; return whether nothing is left."""
        if self._plan is not None and not self._gone_seen and not sweep(self._plan.token):
            return False
        if self._watch is not None:
            self._watch.scan()
        return True

    def _poll_finish(self, finish: "Future[bool]") -> None:
        if not finish.done():
            return
        try:
            left_nothing = finish.result()
        except OSError as error:
            _log.warning("%s cannot be cleared up yet: %s", self._folder.path, error)
            left_nothing = False
        if not left_nothing:
            self._finish = None  # and once more
            return
        if self._failure is None and self._started is None:
            errors = self._folder.shim_errors()[-_ERROR_TAIL_CHARACTERS:].strip()
            reason = f"the shim ended before it had started the ranks{': ' if errors else ''}{errors}"
            self._failure = Failure(reason=reason, retryable=True, at_us=now_us(), blame="node")
        self.over = self._put_gone() if self._failure is None else self._put_failure()

    def _put_gone(self) -> bool:
        """Report that nothing is left, with all exits, so that this one fact says everything."""
        for planned in () if self._plan is None else self._plan.ranks:
            self._exits.setdefault(planned.rank, RankExit(rank=planned.rank, exit_code=LOST_EXIT_CODE))
        exits = tuple(self._exits[rank] for rank in sorted(self._exits))
        return self._put_last(self._crew.facts.exited(self.key, exits, gone=True))

    def _put_failure(self) -> bool:
        failure = self._failure
        assert failure is not None  # noqa: S101 - for the type checker; the callers have looked
        return self._put_last(self._crew.facts.launch_failed(self.key, failure, cause=self._cause))

    def _put_last(self, event: Event) -> bool:
        return self._crew.outbox.put(self.key.job_id, event, self._folder.set_reported)
