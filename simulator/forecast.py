"""What would happen if a job were submitted now: the real core goes on from a copy of its state, in virtual time.

Running and pending jobs are taken to end by their max_runtime, else by how long nine of ten such jobs have run; nothing
else is submitted, nothing fails, and who gives way saves in time.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Literal

from gangline.events import ids
from gangline.events.control import SubmitJob
from gangline.events.decisions import (
    AttemptStopOrdered,
    GangBound,
    JobEnded,
    JobRejected,
    PreemptionOrdered,
)
from gangline.events.types import HOUR_US, SECOND_US, Decision, JobSpec, RankExit, Value
from gangline.scheduler.arrays import task_id
from gangline.scheduler.durations import expected_us
from gangline.scheduler.explain import explanation
from gangline.scheduler.explanation.values import Explanation
from gangline.scheduler.explanation.words import count
from gangline.scheduler.reservations import attempt_end_us
from gangline.scheduler.state import Attempt, Job, State
from gangline.simulator.driver import Driver

HORIZON_US = 7 * 24 * HOUR_US
"""How far ahead it looks, unless told otherwise."""
UNKNOWN_US = HOUR_US
"""How long a job runs on at least if nothing is known of such jobs: one of this age may have run for a moment only."""
LEAVES_US = 30 * SECOND_US
"""How long it takes until the ranks of who is told to go are gone, in their grace."""
ROUND_US = SECOND_US
SIGTERM = 15

Basis = Literal["max_runtime", "learnt", "guess"]
"""On what a duration rests."""


class Evicted(Value, frozen=True, kw_only=True):
    """A job that gives way to it."""

    job_id: str
    name: str
    queue: str
    reason: str


class Forecast(Value, frozen=True, kw_only=True):
    """What would become of a job."""

    outcome: Literal["refused", "starts", "evicts", "waits", "never"]
    """`starts` at once; `evicts` others first; `waits` for others to end; `never` within the horizon."""
    message: str = ""
    """Why it is refused."""
    start_in_us: int | None = None
    nodes: tuple[str, ...] = ()
    evicted: tuple[Evicted, ...] = ()
    ended_before: tuple[str, ...] = ()
    """The jobs that end on its nodes before it starts."""
    waits: Explanation | None = None
    """Why it does not start at once."""
    horizon_us: int = 0
    rests: tuple[str, ...] = ()
    """On what the forecast rests."""


def forecast(
    state: State,
    spec: JobSpec,
    *,
    actor: str = "forecast",
    horizon_us: int = HORIZON_US,
    progress: Callable[[int], None] | None = None,
) -> Forecast:
    """Return what would happen if this were submitted just after a round; `progress` is told how far time has gone."""
    return _Future(state, spec, actor).run(horizon_us, progress)


class _Future:
    """The core's state as it goes on, and the virtual ranks of all jobs."""

    def __init__(self, state: State, spec: JobSpec, actor: str) -> None:
        self._driver = Driver.going_on(state)
        self._begins_us = self._driver.at_us
        self._due: list[tuple[int, int, str, int]] = []
        """(virtual time, order, job, attempt) at which the ranks of an attempt are gone."""
        self._codes: dict[tuple[str, int], int] = {}
        """With which code, if not 0."""
        self._left_us: dict[str, int] = {}
        """Work that is left to jobs that have run."""
        self._bases: dict[str, Basis] = {}
        for job_id in sorted(state.jobs):
            job = state.jobs[job_id]
            if job.attempt is not None:
                self._runs_already(job, job.attempt)
        meta = self._driver.command_meta(actor)
        self._spec = spec
        self._command_id = meta.command_id or b""
        self._driver.append(SubmitJob(meta=meta, spec=spec))
        job_id = ids.job_id(state.log_id, self._command_id)
        self._job_id = job_id if spec.array is None else task_id(job_id, 0)
        self._evicted: dict[str, Evicted] = {}
        self._ended: dict[str, tuple[str, ...]] = {}
        """The nodes of jobs that have ended."""

    def run(self, horizon_us: int, progress: Callable[[int], None] | None) -> Forecast:
        """Let time pass until the job starts, or the horizon is reached."""
        waits: Explanation | None = None
        while True:
            for decision in self._tick():
                found = self._outcome(decision, waits, horizon_us)
                if found is not None:
                    return found
                self._react(decision)
            if waits is None:
                waits = explanation(self._driver.state, self._job_id)
            after_us = self._driver.at_us - self._begins_us
            if progress is not None:
                progress(after_us)
            if waits.rule == "held" or after_us >= horizon_us or not self._go_on():
                return self._result("never", waits, horizon_us)

    def _tick(self) -> tuple[Decision, ...]:
        at_us = self._driver.at_us
        while self._due and self._due[0][0] <= at_us:
            _, _, job_id, attempt = heappop(self._due)
            self._leave(job_id, attempt)
        return self._driver.tick(at_us)

    def _go_on(self) -> bool:
        """Move the clock to the next thing that happens; False if nothing ever will."""
        driver = self._driver
        times = [self._due[0][0]] if self._due else []
        left_us = driver.left_us()
        if driver.state.awaiting_round:
            times.append(driver.at_us + ROUND_US)
        elif left_us is not None:
            times.append(driver.at_us + max(left_us, ROUND_US))
        if not times:
            return False
        driver.at_us = max(min(times), driver.at_us + 1)
        return True

    def _outcome(self, decision: Decision, waits: Explanation | None, horizon_us: int) -> Forecast | None:
        if isinstance(decision, JobRejected) and decision.command_id == self._command_id:
            return Forecast(outcome="refused", message=decision.message, horizon_us=horizon_us)
        if isinstance(decision, JobEnded) and decision.job_id == self._job_id:
            return Forecast(outcome="never", message=decision.cause, waits=waits, horizon_us=horizon_us)
        if not isinstance(decision, GangBound) or decision.job_id != self._job_id:
            return None
        nodes = tuple(dict.fromkeys(share.node_id for share in decision.shares))
        kind: Literal["starts", "evicts", "waits"] = "waits"
        if waits is None:
            kind = "starts"
        elif self._evicted:
            kind = "evicts"
        return self._result(kind, waits, horizon_us, nodes)

    def _result(
        self,
        outcome: Literal["starts", "evicts", "waits", "never"],
        waits: Explanation | None,
        horizon_us: int,
        nodes: tuple[str, ...] = (),
    ) -> Forecast:
        before = [job_id for job_id, where in self._ended.items() if any(node in nodes for node in where)]
        return Forecast(
            outcome=outcome,
            start_in_us=None if outcome == "never" else self._driver.at_us - self._begins_us,
            nodes=nodes,
            evicted=tuple(self._evicted.values()),
            ended_before=tuple(job_id for job_id in before if job_id not in self._evicted),
            waits=waits,
            horizon_us=horizon_us,
            rests=() if outcome == "starts" else self._rests(),
        )

    # --- what jobs do ---

    def _react(self, decision: Decision) -> None:
        state = self._driver.state
        if isinstance(decision, GangBound):
            self._start(state.jobs[decision.job_id], decision)
        elif isinstance(decision, PreemptionOrdered):
            victim = state.jobs[decision.job_id]
            if decision.claimant == self._job_id:
                spec = victim.spec
                self._evicted[victim.job_id] = Evicted(
                    job_id=victim.job_id, name=spec.name, queue=spec.queue, reason=decision.reason
                )
            self._told_to_go(victim, decision.attempt, min(decision.grace_us, LEAVES_US))
        elif isinstance(decision, AttemptStopOrdered):
            self._told_to_go(state.jobs[decision.job_id], decision.attempt, min(decision.grace_us, LEAVES_US))

    def _runs_already(self, job: Job, attempt: Attempt) -> None:
        state = self._driver.state
        left_us = LEAVES_US if attempt.is_stopping else attempt_end_us(state, job, attempt) - state.now_us
        if job.spec.max_runtime_us is not None:
            # It ends by itself just before it would be stopped.
            left_us -= 2 * ROUND_US
        basis = self._bases[job.job_id] = self._basis(job, state.now_us - attempt.bound_at_us)
        if basis == "guess" and not attempt.is_stopping:
            left_us = max(left_us, UNKNOWN_US)
        self._left_us[job.job_id] = max(left_us, 0)
        if attempt.is_stopping:
            self._codes[job.job_id, attempt.bound.attempt] = -SIGTERM
        self._schedule(job.job_id, attempt.bound.attempt, left_us)

    def _start(self, job: Job, bound: GangBound) -> None:
        for node_id in dict.fromkeys(share.node_id for share in bound.shares):
            self._driver.ranks_started(job.job_id, bound.attempt, node_id)
        if job.job_id not in self._left_us:
            self._left_us[job.job_id] = self._expected_us(job)
            self._bases[job.job_id] = self._basis(job, 0)
        self._schedule(job.job_id, bound.attempt, self._left_us[job.job_id])

    def _expected_us(self, job: Job) -> int:
        spec = job.spec
        if spec.max_runtime_us is not None:
            return max(spec.max_runtime_us - 2 * ROUND_US, ROUND_US)
        in_all_us = expected_us(self._driver.state.durations, spec.queue, spec.gpus, job.ran_us)
        return UNKNOWN_US if in_all_us is None else max(in_all_us - job.ran_us, ROUND_US)

    def _basis(self, job: Job, age_us: int) -> Basis:
        spec = job.spec
        if spec.max_runtime_us is not None:
            return "max_runtime"
        known = expected_us(self._driver.state.durations, spec.queue, spec.gpus, job.ran_us + age_us)
        return "guess" if known is None else "learnt"

    def _told_to_go(self, job: Job, attempt: int, after_us: int) -> None:
        """Let the ranks leave; what is left of the work goes on in the next attempt."""
        bound_us = job.attempt.bound_at_us if job.attempt is not None else self._driver.state.now_us
        ran_us = self._driver.state.now_us - bound_us
        self._left_us[job.job_id] = max(self._left_us.get(job.job_id, UNKNOWN_US) - ran_us, ROUND_US)
        self._codes[job.job_id, attempt] = -SIGTERM
        self._schedule(job.job_id, attempt, after_us)

    def _schedule(self, job_id: str, attempt: int, after_us: int) -> None:
        heappush(self._due, (self._driver.at_us + max(after_us, ROUND_US), len(self._due), job_id, attempt))

    def _leave(self, job_id: str, attempt: int) -> None:
        """Report every rank of an attempt gone, unless that was done."""
        job = self._driver.state.jobs.get(job_id)
        live = None if job is None else job.attempt
        if live is None or live.bound.attempt != attempt:
            return
        code = self._codes.get((job_id, attempt), 0)
        nodes = tuple(dict.fromkeys(share.node_id for share in live.bound.shares))
        for node_id in nodes:
            exits = tuple(
                RankExit(rank=rank, exit_code=code)
                for share in live.bound.shares
                if share.node_id == node_id
                for rank in share.ranks
            )
            self._driver.ranks_exited(job_id, attempt, node_id, exits)
        self._ended[job_id] = nodes

    def _rests(self) -> tuple[str, ...]:
        counts: dict[str, int] = {}
        for basis in self._bases.values():
            counts[basis] = counts.get(basis, 0) + 1
        texts = {
            "max_runtime": "by max_runtime, which may be longer than the truth",
            "learnt": "by how long nine of ten such jobs have run, given the age",
            "guess": "of which nothing is known: to run as long again as until now, an hour at least",
        }
        said = [f"{count(counts[basis], 'job')} {text}" for basis, text in texts.items() if basis in counts]
        return (*said, "nothing else is submitted, nothing fails, and who gives way has saved in 30 s")
