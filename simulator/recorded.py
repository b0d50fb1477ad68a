"""Makes a plan of a log of gangline: the same jobs on the same nodes, to be simulated under another policy.

How long a job works is what its attempts ran, less what was lost when they failed: the time since their last committed
checkpoint. A job that runs still works as long as it has run; one that never ran is left out, for nobody knows.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gangline.events.control import ActivatePolicy, LogCreated, NodeRegistered, SubmitJob
from gangline.events.decisions import (
    AttemptEnded,
    AttemptPreempted,
    CheckpointCommitted,
    GangBound,
    JobAdmitted,
    PolicyActivated,
)
from gangline.events.history import HistoryReader, Segment
from gangline.events.log import Log
from gangline.events.policy import Policy
from gangline.events.types import Decision, JobSpec
from gangline.schemas.errors import GanglineError
from gangline.simulator.plan import Plan
from gangline.simulator.queueing import RESTART_US, SAVE_US
from gangline.simulator.work import SECOND_US, VirtualNode, Work


class BareLog(GanglineError):
    """There is nothing on a log that could be simulated."""


class _Life:
    """What a log says of one job."""

    def __init__(self, spec: JobSpec, submit_us: int) -> None:
        self.spec = spec
        self.submit_us = submit_us
        self.worked_us = 0
        self.bound_us: int | None = None
        self.saved_us = 0
        """When the live attempt last committed a checkpoint, or was bound."""
        self.saves = 0

    def ends(self, at_us: int, *, lost: bool) -> None:
        """Count the live attempt's work."""
        if self.bound_us is not None:
            self.worked_us += max((self.saved_us if lost else at_us) - self.bound_us, 0)
        self.bound_us = None


class _Past:
    """Folds a log into its jobs, its nodes and its last policy."""

    def __init__(self) -> None:
        self.lives: dict[str, _Life] = {}
        self.nodes: dict[str, VirtualNode] = {}
        self.policy = Policy()
        self.now_us = 0
        self._submitted: dict[int, SubmitJob] = {}
        self._policies: dict[int, Policy] = {}
        self._specs: dict[str, tuple[JobSpec, int]] = {}

    def take(self, segment: Segment) -> None:
        """Fold one round and the inputs before it."""
        for record, event in segment.inputs:
            if isinstance(event, SubmitJob):
                self._submitted[record.index] = event
            elif isinstance(event, ActivatePolicy):
                self._policies[record.index] = event.policy
            elif isinstance(event, NodeRegistered):
                self.nodes[event.node_id] = _node(event)
            if not isinstance(event, LogCreated):
                self.now_us = max(self.now_us, event.meta.at_us)
        at_us = segment.round.meta.at_us
        for decision in segment.decisions:
            self._decided(decision, at_us)

    def _decided(self, decision: Decision, at_us: int) -> None:
        if isinstance(decision, PolicyActivated):
            self.policy = self._policies[decision.control_index]
        elif isinstance(decision, JobAdmitted):
            event = self._submitted.pop(decision.control_index)
            self._specs[decision.job_id] = (event.spec, event.meta.at_us)
            if event.spec.array is None:
                self._life(decision.job_id)
        elif isinstance(decision, GangBound):
            life = self._life(decision.job_id)
            life.bound_us = life.saved_us = at_us
        elif isinstance(decision, CheckpointCommitted):
            life = self._life(decision.job_id)
            life.saved_us, life.saves = at_us, life.saves + 1
        elif isinstance(decision, AttemptEnded):
            self._life(decision.job_id).ends(at_us, lost=decision.outcome == "failed")
        elif isinstance(decision, AttemptPreempted):
            self._life(decision.job_id).ends(at_us, lost=True)

    def _life(self, job_id: str) -> _Life:
        if job_id not in self.lives:
            # The jobs of an array are admitted under one id, and named by it and their index.
            spec, at_us = self._specs[job_id.partition(".")[0]]
            self.lives[job_id] = _Life(spec, at_us)
        return self.lives[job_id]


def of_log(log: Log, name: str) -> Plan:
    """Return the plan of a log. Raises BareLog where no job on it has run, and what reading a log raises."""
    past = _Past()
    for segment in _segments(log):
        past.take(segment)
    for life in past.lives.values():
        life.ends(past.now_us, lost=False)
    ran = [(job_id, life) for job_id, life in past.lives.items() if life.worked_us]
    if not ran or not past.nodes:
        raise BareLog(f"no job has run on the log {name}, so there is nothing to simulate: name another log")
    left = len(past.lives) - len(ran)
    first_us = min(life.submit_us for _, life in ran)
    ran.sort(key=lambda one: (one[1].submit_us, one[0]))
    return Plan(
        title=f"the log {name}: {len(ran):,} jobs" + (f" ({left:,} never ran, and are left out)" if left else ""),
        nodes=[past.nodes[node_id] for node_id in sorted(past.nodes)],
        works=[_work(number, life, first_us) for number, (_, life) in enumerate(ran)],
        queues=past.policy.queues,
    )


def _segments(log: Log) -> Iterator[Segment]:
    reader = HistoryReader(log)
    try:
        while found := reader.read():
            yield from found
    finally:
        reader.close()


def _node(event: NodeRegistered) -> VirtualNode:
    return VirtualNode(
        node_id=event.node_id,
        pod=event.pod,
        gpus=len(event.gpus),
        gpu_type=event.gpu_type,
        cpu_milli=event.cpu_milli,
        memory_bytes=event.memory_bytes,
    )


def _work(number: int, life: _Life, first_us: int) -> Work:
    # Ids of a simulation are others, and whoever waited for a job or an operator has waited by now.
    spec = replace(life.spec, array=None, array_parallel=None, after=(), held=False)
    return Work(
        number=number,
        submit_us=life.submit_us - first_us,
        spec=spec,
        work_us=max(life.worked_us, SECOND_US),
        # The pauses of saves that were made are part of what it worked.
        save_us=0 if life.saves else SAVE_US,
        save_interval_us=life.worked_us // life.saves if life.saves else None,
        restart_us=RESTART_US,
    )


__all__ = ["BareLog", "of_log"]
