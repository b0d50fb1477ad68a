"""Runs a scenario: its past as it is told, then the real core in virtual time, with what happens when."""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events import ids
from gangline.events.control import NodeChecked
from gangline.events.decisions import NodeCheckOrdered
from gangline.events.log import Log
from gangline.events.types import Decision, Event
from gangline.scheduler.arrays import task_id
from gangline.simulator.observer import Observer
from gangline.simulator.scenario import Happening, Scenario, ScenarioError, ScenarioJob
from gangline.simulator.scenario_agents import ScenarioAgents
from gangline.simulator.scenario_deeds import do
from gangline.simulator.scenario_driver import ScenarioDriver
from gangline.simulator.scenario_outcome import Outcome
from gangline.simulator.scenario_past import Past
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import Work
from gangline.simulator.world import SETUP_US, World

MAX_ROUNDS = 100_000
"""Rounds whose states are kept; more are no scenario, but a simulation."""


def run(scenario: Scenario, *, log: Log | None = None) -> Outcome:
    """Return what comes of a scenario. Raises ScenarioError, SimulationError if it cannot be."""
    world = ScenarioWorld(scenario, log=log)
    world.live_through()
    return world.outcome


class ScenarioWorld(World):
    """A cluster in virtual time in which the things happen that a scenario names."""

    driver_type = ScenarioDriver
    agents_type = ScenarioAgents
    driver: ScenarioDriver
    agents: ScenarioAgents

    def __init__(self, scenario: Scenario, *, log: Log | None = None) -> None:
        """Register the nodes and activate the policy, long enough before the beginning for what lies before it."""
        self.scenario = scenario
        self.uploading: dict[str, tuple[int, int]] = {}
        """Uploads that were begun, by job id: attempt, and the work done by then."""
        first_us = min([0, *(job.submit_us for job in scenario.jobs)])
        super().__init__(
            nodes=[one.node for one in scenario.nodes if one.joins_us is None],
            policy=scenario.policy,
            works=[_work(number, job) for number, job in enumerate(scenario.jobs)],
            log=log,
            log_id="scenario",
            setup_us=SETUP_US - first_us,
            observers=[_Watch(self)],
        )
        self.named = {job.name: virtual for job, virtual in zip(scenario.jobs, self.jobs, strict=True)}
        """Jobs by name; those of an array as `name.index`, once it is submitted."""
        self.outcome = Outcome(scenario, self.named)
        self.agents.cannot_launch = {one.node.node_id: one.cannot_launch for one in scenario.nodes if one.cannot_launch}

    def live_through(self) -> None:
        """Let the past be told and the rest come about."""
        Past(self).tell()
        self.driver.open_term()
        for one in self.scenario.nodes:
            if one.joins_us is not None:
                self.timeline.at(one.joins_us, self.agents.register, one.node)
        for happening in self.scenario.happenings:
            self.timeline.at(happening.at_us, self._happen, happening)
        at_us: int | None = 0
        while at_us is not None and at_us <= self.scenario.until_us:
            if len(self.outcome.rounds) > MAX_ROUNDS:
                raise ScenarioError(("until",), f"by then it has more than {MAX_ROUNDS:,} rounds: let it end earlier")
            self._tick(at_us)
            at_us = self._next_tick_us()
        self.driver.flush()

    def command(self, kind: type[Event], **fields: object) -> bytes:
        """Append a command, and return its id."""
        meta = self.driver.command_meta("operator:scenario")
        self.driver.append(kind(meta=meta, **fields))
        return meta.command_id or b""

    def job_of(self, job_id: str) -> ScenarioJob:
        """Return what the scenario says about a job, or about the array that it is of."""
        return self.scenario.jobs[self.by_id[job_id].work.number]

    def job_of_command(self, command_id: bytes) -> ScenarioJob:
        """Return what the scenario says about the job that a command submitted."""
        return self.job_of(ids.job_id(self.driver.log_id, command_id))

    def react(self, decision: Decision) -> None:
        """Let agents and users do what follows from a decision, and nodes be examined."""
        if isinstance(decision, NodeCheckOrdered):
            self._examine(decision)
        else:
            super().react(decision)

    def _examine(self, order: NodeCheckOrdered) -> None:
        sick = {one.node.node_id: one.sick for one in self.scenario.nodes}[order.node_id]
        self.driver.append(
            NodeChecked(
                meta=self.driver.meta(f"agent:{order.node_id}"),
                node_id=order.node_id,
                check_index=order.check_index,
                healthy=not sick,
                report=sick or "all is well",
            )
        )

    def _submit(self, job: VirtualJob) -> None:
        asked = self.scenario.jobs[job.work.number]
        after = tuple(self.named[name].job_id or name if name in self.named else name for name in asked.after)
        job.work = replace(job.work, spec=replace(job.work.spec, after=after))
        super()._submit(job)
        for index in range(job.work.spec.array or 0):
            task = VirtualJob(job.work)
            task.job_id = task_id(job.job_id, index)
            task.waits(self.timeline.now_us)
            self.by_id[task.job_id] = self.named[f"{asked.name}.{index}"] = task

    def _happen(self, happening: Happening) -> None:
        command_id = do(self, happening)
        if command_id is not None:
            self.outcome.commands[command_id] = happening


class _Watch(Observer):
    """Keeps what every round decided, and the state behind it."""

    def __init__(self, world: ScenarioWorld) -> None:
        self._world = world
        self._rounds = 0

    def ticked(self, at_us: int, decisions: Sequence[Decision]) -> None:
        """Keep a round; a tick without one changed nothing."""
        if self._world.driver.rounds != self._rounds:
            self._rounds = self._world.driver.rounds
            self._world.outcome.add(at_us, self._world.driver.state, decisions)


def _work(number: int, job: ScenarioJob) -> Work:
    return Work(
        number=number,
        submit_us=job.submit_us,
        spec=job.spec,
        work_us=job.work_us,
        save_us=job.save_us,
        save_interval_us=job.save_interval_us,
        restart_us=job.restart_us,
    )
