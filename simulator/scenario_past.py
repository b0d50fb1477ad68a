"""What lies before a scenario's beginning: jobs that were submitted, ran, saved and gave way, told round by round."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from gangline.events.control import CordonNode
from gangline.events.decisions import AttemptStopOrdered, JobRejected, NodeQuarantined, PreemptionOrdered
from gangline.events.types import Decision, JobSpec, Share
from gangline.scheduler.reducers.clock import MAX_STEP_US
from gangline.scheduler.round import Round
from gangline.scheduler.rules.placement import binding, free_port
from gangline.scheduler.state import Node, State
from gangline.simulator.scenario import PastAttempt, ScenarioError, ScenarioJob
from gangline.simulator.scenario_driver import DICTATED
from gangline.simulator.world import ROUND_US

if TYPE_CHECKING:
    from gangline.simulator.scenario_run import ScenarioWorld


class _Planned(NamedTuple):
    """A binding, or its end by giving way, that the scenario states."""

    at_us: int
    order: int
    what: Literal["bind", "give way"]
    job: ScenarioJob
    attempt: PastAttempt


class Past:
    """Tells a world what lies before its beginning."""

    def __init__(self, world: "ScenarioWorld") -> None:
        """Plan what is dictated."""
        self._world = world
        planned: list[_Planned] = []
        for job in world.scenario.jobs:
            for attempt in job.past:
                planned.append(_Planned(attempt.since_us, len(planned), "bind", job, attempt))
                if attempt.until_us is not None:
                    planned.append(_Planned(attempt.until_us, len(planned), "give way", job, attempt))
        self._planned = sorted(planned)

    def tell(self) -> None:
        """Let the time up to the beginning pass. Raises ScenarioError for what cannot have been."""
        world = self._world
        for one in world.scenario.nodes:
            if one.cordoned:
                world.command(CordonNode, node_id=one.node.node_id, reason="as the scenario begins")
        while world.timeline.now_us < -ROUND_US:
            self._step(self._next_us())

    def _next_us(self) -> int:
        """Return when the next tick is: at the next thing that happens, in a whole second, but soon."""
        now_us = self._world.timeline.now_us
        times = [now_us + MAX_STEP_US, -ROUND_US]
        if self._planned:
            times.append(self._planned[0].at_us)
        if self._world.timeline.next_us is not None:
            times.append(-(-self._world.timeline.next_us // ROUND_US) * ROUND_US)
        return max(min(times), now_us + ROUND_US)

    def _step(self, at_us: int) -> None:
        world = self._world
        world.happen_until(at_us)
        due = [one for one in self._planned if one.at_us <= at_us]
        self._planned = self._planned[len(due) :]
        state = world.driver.state
        is_last = at_us >= -ROUND_US
        over = state.deadlines_from_us is not None and state.deadlines_from_us <= state.now_us + MAX_STEP_US
        if not (due or is_last or over or state.awaiting_round):
            world.driver.dictate(world.start_us + at_us, None)
            return

        def dictate(round_: Round, decided: Sequence[Decision]) -> None:
            self._keep(round_, decided)
            for one in due:
                self._plan(round_, one)
            if is_last:
                self._quarantine(round_)

        for decision in world.driver.dictate(world.start_us + at_us, dictate):
            world.react(decision)

    def _keep(self, round_: Round, decided: Sequence[Decision]) -> None:
        """Let the core's own decisions stand, but for those about who runs where."""
        for decision in decided:
            if isinstance(decision, DICTATED):
                continue
            if isinstance(decision, AttemptStopOrdered) and decision.reason == "max_runtime":
                job = self._world.job_of(decision.job_id)
                raise ScenarioError((*job.path, "running"), "its max_runtime is over before the beginning")
            if isinstance(decision, JobRejected):
                job = self._world.job_of_command(decision.command_id)
                if job.rejected is None:
                    raise ScenarioError(job.path, f"the core does not admit it: {decision.message}")
                self._world.outcome.rejected_before[job.name] = ("rejected", decision.message)
            round_.emit(decision)

    def _plan(self, round_: Round, planned: _Planned) -> None:
        world, attempt = self._world, planned.attempt
        virtual = world.named[planned.job.name]
        job = round_.state.jobs.get(virtual.job_id)
        if planned.what == "give way":
            if job is not None and job.attempt is not None:
                order = PreemptionOrdered(
                    job_id=job.job_id,
                    attempt=job.attempts,
                    reason=attempt.reason,
                    claimant=None,
                    grace_us=world.scenario.policy.preemption_grace_us,
                )
                round_.emit(order)
            return
        if job is None or job.job_id not in round_.state.pending:
            raise ScenarioError(attempt.path, "it is not pending when this begins: what was before is not over")
        shares = _shares(round_.state, job.spec, attempt)
        port = free_port(round_.state, world.scenario.policy, round_.state.nodes[shares[0].node_id])
        if port is None:
            node_id = shares[0].node_id
            raise ScenarioError(attempt.path, f"{node_id} has no port left: give the policy a larger port_count")
        round_.emit(binding(round_, job, shares, port))
        for saved_us in attempt.saved_us:
            world.timeline.at(saved_us, world.agents.save_now, virtual)

    def _quarantine(self, round_: Round) -> None:
        for one in self._world.scenario.nodes:
            if one.quarantined_until_us is not None:
                until_us = round_.state.now_us + ROUND_US + one.quarantined_until_us
                reason = "as the scenario begins"
                round_.emit(NodeQuarantined(node_id=one.node.node_id, until_us=until_us, reason=reason))


def _shares(state: State, spec: JobSpec, attempt: PastAttempt) -> tuple[Share, ...]:
    """Return the shares that an attempt had. Raises ScenarioError if the nodes did not have them free."""
    path = (*attempt.path, "on")
    shares: list[Share] = []
    rank = 0
    left = spec.gpus
    for seat in attempt.seats:
        node = state.nodes.get(seat.node_id)
        if node is None:
            known = ", ".join(state.node_order) or "there is none"
            raise ScenarioError(path, f"there is no node {seat.node_id!r} then: the nodes are {known}")
        if any(share.node_id == seat.node_id for share in shares):
            raise ScenarioError(path, f"{seat.node_id} is named twice: name all its GPUs at once, as in node-0:0-3,6")
        gpus = seat.gpus or _lowest(node, spec, left // (spec.nodes or 1) if spec.nodes else left)
        share = Share(
            node_id=node.node_id,
            address=node.address,
            gpus=gpus,
            gpu_milli=spec.gpu_milli,
            cpu_milli=spec.cpu_milli * max(len(gpus), 1),
            memory_bytes=spec.memory_bytes * max(len(gpus), 1),
            first_rank=rank,
        )
        _check(node, share, path)
        shares.append(share)
        rank += len(gpus)
        left -= len(gpus)
    least, most = (spec.elastic.min_gpus, spec.elastic.max_gpus) if spec.elastic else (spec.gpus, spec.gpus)
    if not least <= rank <= most:
        asked = str(least) if least == most else f"{least} to {most}"
        raise ScenarioError(path, f"these are {rank} GPUs that were free then, the job runs on {asked}")
    return tuple(shares)


def _lowest(node: Node, spec: JobSpec, most: int) -> tuple[int, ...]:
    free = [gpu for gpu, milli in zip(node.gpus, node.free_milli, strict=True) if milli >= spec.gpu_milli]
    return tuple(free[:most])


def _check(node: Node, share: Share, path: tuple[str | int, ...]) -> None:
    free = dict(zip(node.gpus, node.free_milli, strict=True))
    for gpu in share.gpus:
        if gpu not in free:
            raise ScenarioError(path, f"{node.node_id} has no GPU {gpu}: it has {len(node.gpus)}, from 0 on")
        if free[gpu] < share.gpu_milli:
            raise ScenarioError(path, f"GPU {gpu} of {node.node_id} is taken then: {free[gpu]} thousandths are free")
    if share.cpu_milli > node.cpu_free_milli or share.memory_bytes > node.memory_free_bytes:
        have = f"{node.cpu_free_milli}m CPU and {node.memory_free_bytes:,} bytes of memory"
        raise ScenarioError(path, f"{node.node_id} has {have} free then, the job takes more")
