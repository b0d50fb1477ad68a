"""A cluster in virtual time: users and nodes feed the real core, and do what it decides."""

from collections.abc import Callable, Sequence

from gangline.events import ids
from gangline.events.control import ActivatePolicy, SubmitJob
from gangline.events.decisions import (
    AttemptStopOrdered,
    GangBound,
    JobEnded,
    JobRejected,
    PolicyRefused,
    PreemptionOrdered,
)
from gangline.events.log import Log
from gangline.events.policy import Policy
from gangline.events.types import Decision
from gangline.schemas.errors import GanglineError
from gangline.simulator.agents import Agents
from gangline.simulator.driver import Driver
from gangline.simulator.observer import Observer
from gangline.simulator.run import Next
from gangline.simulator.timeline import Timeline
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import ARRIVALS, SECOND_US, Failures, VirtualNode, Work, no_failures

START_US = 1_750_000_000 * SECOND_US
"""When simulations begin, by the clocks in them, unless told otherwise."""
SETUP_US = 10 * SECOND_US
"""How long before its beginning the nodes register and the policy is activated, unless told otherwise."""
ROUND_US = SECOND_US
"""A round is decided after all inputs of so long."""
QUIET_US = 400 * 24 * 3600 * SECOND_US
"""If jobs wait, nothing is going to happen, and nothing was decided for so long, they will never start."""


class SimulationError(GanglineError):
    """What is simulated cannot be."""


class World:
    """Virtual nodes and jobs around the real core. Times are microseconds from the beginning of the simulation."""

    driver_type: type[Driver] = Driver
    agents_type: type[Agents] = Agents

    def __init__(
        self,
        *,
        nodes: Sequence[VirtualNode],
        policy: Policy,
        works: Sequence[Work],
        failures: Failures = no_failures,
        observers: Sequence[Observer] = (),
        log: Log | None = None,
        log_id: str = "simulation",
        start_us: int = START_US,
        setup_us: int = SETUP_US,
    ) -> None:
        """Register the nodes and activate the policy. Raises SimulationError if the core refuses the policy."""
        self.start_us = start_us
        self.jobs = [VirtualJob(work) for work in works]
        self.by_id: dict[str, VirtualJob] = {}
        self.live = len(self.jobs)
        """Jobs that have not ended, those not submitted yet included."""
        self.timeline = Timeline(-setup_us)
        self.driver = self.driver_type(log_id=log_id, at_us=start_us - setup_us, log=log)
        self.agents = self.agents_type(self.driver, self.timeline, nodes, failures, observers)
        self._observers = observers
        self._decided_us = 0
        self.driver.append(ActivatePolicy(meta=self.driver.command_meta("operator:simulator"), policy=policy))
        self.agents.register_all()
        self.timeline.now_us += ROUND_US
        for decision in self.driver.tick(start_us + self.timeline.now_us):
            if isinstance(decision, PolicyRefused):
                raise SimulationError(f"the policy does not hold together: {decision.message}")
        for job in self.jobs:
            self.timeline.at(job.work.submit_us, self._submit, job, phase=ARRIVALS)

    def run(self, until_us: int | None = None, *, progress: Callable[[int], None] | None = None) -> None:
        """Let time pass until every job has ended, or until a time; `progress` is told the time at every tick.

        Raises SimulationError if the jobs that are left will never start.
        """
        while self.live:
            at_us = self._next_tick_us()
            quiet = self.timeline.next_us is None and at_us is not None and at_us - self._decided_us > QUIET_US
            if at_us is None or quiet:
                raise SimulationError(f"{self.live} jobs are left that never start, such as {self._waiting()}")
            if until_us is not None and at_us > until_us:
                self.timeline.now_us = until_us
                break
            self._tick(at_us)
            if progress is not None:
                progress(at_us)
        for job in list(self.agents.running.values()):
            if job.run is not None:
                self.agents.account(job, job.run, Next(self.timeline.now_us, "finished", 0))
        self.driver.flush()

    def _next_tick_us(self) -> int | None:
        """Return when the next round is: every second that has inputs, and when the core waits for time."""
        now_us, next_us = self.timeline.now_us, self.timeline.next_us
        after_us: int | None = None
        if self.driver.state.awaiting_round:
            return now_us + ROUND_US
        left_us = self.driver.left_us()
        if left_us is not None:
            after_us = now_us + left_us
        if next_us is not None and (after_us is None or next_us < after_us):
            after_us = next_us
        return None if after_us is None else max(-(-after_us // ROUND_US) * ROUND_US, now_us + ROUND_US)

    def happen_until(self, at_us: int) -> None:
        """Let time pass, and what happens by then happen, without deciding anything."""
        timeline, driver, start_us = self.timeline, self.driver, self.start_us
        while (happening := timeline.take(at_us)) is not None:
            happens_us, what, about = happening
            driver.at_us = start_us + happens_us
            what(about)
        timeline.now_us = at_us

    def _tick(self, at_us: int) -> None:
        self.happen_until(at_us)
        decisions = self.driver.tick(self.start_us + at_us)
        if decisions:
            self._decided_us = at_us
            for decision in decisions:
                self.react(decision)
        for observer in self._observers:
            observer.ticked(at_us, decisions)

    def _submit(self, job: VirtualJob) -> None:
        meta = self.driver.command_meta(f"user:{job.work.spec.queue}")
        self.driver.append(SubmitJob(meta=meta, spec=job.work.spec))
        job.job_id = ids.job_id(self.driver.log_id, meta.command_id or b"")
        job.waits(self.timeline.now_us)
        self.by_id[job.job_id] = job
        for observer in self._observers:
            observer.submitted(self.timeline.now_us, job)

    def react(self, decision: Decision) -> None:
        """Let agents and users do what follows from a decision."""
        if isinstance(decision, GangBound):
            self.agents.bound(self.by_id[decision.job_id], decision)
        elif isinstance(decision, AttemptStopOrdered):
            self.agents.stop(self.by_id[decision.job_id], decision)
        elif isinstance(decision, PreemptionOrdered):
            self.agents.preempt(self.by_id[decision.job_id], decision)
        elif isinstance(decision, JobEnded):
            self._over(self.by_id[decision.job_id], decision.outcome, decision.cause)
        elif isinstance(decision, JobRejected):
            job = self.by_id[ids.job_id(self.driver.log_id, decision.command_id)]
            self._over(job, "rejected", decision.message)

    def _over(self, job: VirtualJob, outcome: str, cause: str) -> None:
        self.live -= 1
        job.ends(self.timeline.now_us, outcome, cause)
        for observer in self._observers:
            observer.ended(self.timeline.now_us, job)

    def _waiting(self) -> str:
        left = [job for job in self.jobs if job.outcome is None]
        return ", ".join(f"'{job.work.spec.name}' ({job.work.spec.gpus} GPUs)" for job in left[:3])
