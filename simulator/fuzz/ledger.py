"""What the log says, folded without any code of the scheduler: who holds what, whom commands and facts speak of.

The invariants compare what the core decides, and what it counts, with this.
"""

from collections.abc import Iterable
from typing import Any

from gangline.events import control, decisions
from gangline.events.control import COMMANDS
from gangline.events.policy import Policy, with_queue, without_queue
from gangline.events.types import Decision, Event
from gangline.simulator.fuzz.charges import Charges
from gangline.simulator.fuzz.records import MAX_STEP_US, Held, JobRecord, NodeRecord, Watch, milli_of


class Ledger:
    """The fold. Records of `control` count when the round that follows them says which are skipped."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self._policy_next: Policy | None = None
        self.now_us = 0
        self.before_us = 0
        self._ticked_us: int | None = None
        self.ticker = ""
        self.tick_index = -1
        self.jobs: dict[str, JobRecord] = {}
        self.arrays: dict[str, int] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.held: dict[tuple[str, int, int], Held] = {}
        self.commands: dict[int, Event] = {}
        """Not answered yet, by control index."""
        self.answers: dict[bytes, list[decisions.Answer]] = {}
        self.answered: dict[int, int] = {}
        """How often the command at a control index was."""
        self.room: dict[str, decisions.RoomHeld] = {}
        self.reserved: dict[str, decisions.NodesReserved] = {}
        self.orders: dict[str, list[str]] = {}
        """By claimant: who was told in this round to give way to it, before what becomes free was held for it."""
        self.evictions: set[tuple[str, str | None, str]] = set()
        """Who gave way to whom, and why."""
        self.watch = Watch()
        self.memo: dict[object, Any] = {}
        """What was found out since the last record, by what it was."""
        self.charges = Charges()
        self.facts = {
            control.NodeRegistered: self._registered,
            control.NodeLost: self._node_lost,
            control.NodeRecovered: self._node_lost,
            control.NodeFaulted: self._faulted,
            control.NodeChecked: self._checked,
            control.RanksExited: self._exited,
            control.LaunchFailed: self._launch_failed,
            control.TickerTookOver: self._took_over,
            control.ClockTicked: self._ticked,
        }
        self._seen: set[bytes] = set()

    # --- control ---

    def take(self, index: int, event: Event) -> None:
        """Take a record of control that is not skipped."""
        self.memo.clear()
        if isinstance(event, COMMANDS):
            self.commands[index] = event
            return
        repeated = event.meta.event_id in self._seen
        self._seen.add(event.meta.event_id)
        fact: Any = self.facts.get(type(event))
        if fact is not None:
            self._index = index
            self._repeated = repeated
            fact(event)

    def _took_over(self, event: control.TickerTookOver) -> None:
        self.ticker = event.ticker

    def _ticked(self, event: control.ClockTicked) -> None:
        if event.ticker != self.ticker:
            return
        at_us = event.meta.at_us
        self.tick_index = self._index
        self.before_us = self.now_us
        if self._ticked_us is None:
            self.now_us = self.before_us = at_us
        else:
            self.now_us += min(max(at_us - self._ticked_us, 0), MAX_STEP_US)
        self._ticked_us = at_us
        if self.policy is not None:
            self.charges.decay(self.before_us, self.now_us, self.policy)

    def _registered(self, event: control.NodeRegistered) -> None:
        if self._repeated:
            return  # it was true when it was first said
        node = self.nodes.get(event.node_id)
        if node is None:
            self.nodes[event.node_id] = NodeRecord(event)
            return
        if node.has.boot_id != event.boot_id:
            node.broken.clear()
        if node.has.agent_id != event.agent_id:
            node.lost = False
        node.has = event
        if event.attempts_listed:
            listed = {(one.job_id, one.attempt) for one in event.attempts}
            for key, held in list(self.held.items()):
                if held.share.node_id != event.node_id or key[:2] in listed or self._is_live(key[0], key[1]):
                    continue
                self._release(key)

    def _node_lost(self, event: control.NodeLost | control.NodeRecovered) -> None:
        node = self.nodes.get(event.node_id)
        if node is not None and node.has.boot_id == event.boot_id and not self._repeated:
            node.lost = isinstance(event, control.NodeLost)

    def _faulted(self, event: control.NodeFaulted) -> None:
        node = self.nodes.get(event.node_id)
        if node is not None and event.gpu is not None and not self._repeated:
            node.broken.add(event.gpu)

    def _checked(self, event: control.NodeChecked) -> None:
        node = self.nodes.get(event.node_id)
        if node is not None and node.check_index == event.check_index:
            node.check_index = None
            node.broken -= node.broken if event.healthy else set()

    def _exited(self, event: control.RanksExited) -> None:
        if self._is_live(event.job_id, event.attempt):
            self.jobs[event.job_id].exited = True
        if event.gone:
            self._gone(event.job_id, event.attempt, event.node_id)

    def _launch_failed(self, event: control.LaunchFailed) -> None:
        if event.node_id in self.nodes:
            self.nodes[event.node_id].could_not_launch.add(event.job_id)
        self._gone(event.job_id, event.attempt, event.node_id)

    def _gone(self, job_id: str, attempt: int, node_id: str) -> None:
        for key, held in list(self.held.items()):
            if key[:2] == (job_id, attempt) and held.share.node_id == node_id:
                self._release(key)

    def _release(self, key: tuple[str, int, int]) -> None:
        held = self.held.pop(key)
        if self._is_live(held.job_id, held.attempt):
            self.charges.change(self.jobs[held.job_id].spec.queue, self.now_us, -milli_of(held.share))

    def _is_live(self, job_id: str, attempt: int) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.live is not None and job.live.attempt == attempt

    # --- decisions ---

    def decide(self, decision: Decision) -> None:
        """Take a decision of the round of the last tick."""
        self.memo.clear()
        name = f"_{type(decision).__name__}"
        method = getattr(self, name, None)
        if isinstance(decision, decisions.Answer):
            self._answer(decision)
        if method is not None:
            method(decision)

    def finish_round(self, *, more: bool) -> None:
        """End a round: a policy that it activated is in force."""
        self.orders.clear()
        self.memo.clear()
        if not more and self._policy_next is not None:
            self.policy, self._policy_next = self._policy_next, None

    @property
    def policy_changes(self) -> bool:
        """Whether the round under way has changed the policy."""
        return self._policy_next is not None

    def _answer(self, decision: decisions.Answer) -> None:
        index = decision.control_index
        self.answered[index] = self.answered.get(index, 0) + 1
        self.answers.setdefault(decision.command_id, []).append(decision)
        command = self.commands.pop(index, None)
        if isinstance(decision, decisions.JobAdmitted) and isinstance(command, control.SubmitJob):
            self._admit(decision, command, index)
        if isinstance(decision, decisions.PolicyActivated) and isinstance(command, control.ActivatePolicy):
            self._policy_next = command.policy
            if self.policy is None:
                self.policy = command.policy
        if isinstance(decision, decisions.CommandAccepted) and command is not None:
            self._do(command)

    def _admit(self, decision: decisions.JobAdmitted, command: control.SubmitJob, index: int) -> None:
        spec = command.spec
        if spec.array is None:
            self.jobs[decision.job_id] = JobRecord(spec, index, self.now_us)
            return
        self.arrays[decision.job_id] = spec.array
        for task in range(spec.array):
            self.jobs[f"{decision.job_id}.{task}"] = JobRecord(spec, index, self.now_us)

    def _do(self, command: Event) -> None:
        if isinstance(command, control.CordonNode):
            self.nodes[command.node_id].cordoned = True
        elif isinstance(command, control.DrainNode):
            self.nodes[command.node_id].draining = True
        elif isinstance(command, control.UncordonNode):
            node = self.nodes[command.node_id]
            node.cordoned = node.draining = node.quarantined = False
            node.broken.clear()
        elif isinstance(command, control.HoldJob | control.ReleaseJob):
            for job in self.of(command.job_id):
                job.hold_or_release(self.now_us, held=isinstance(command, control.HoldJob))
        elif isinstance(command, control.SetQueue | control.RemoveQueue) and self.policy is not None:
            latest = self._policy_next or self.policy
            if isinstance(command, control.SetQueue):
                self._policy_next = with_queue(latest, command.queue)
            else:
                self._policy_next = without_queue(latest, command.path)
        elif isinstance(command, control.ReprioritiseJob):
            for job in self.of(command.job_id):
                job.priority = command.priority

    def of(self, job_id: str) -> Iterable[JobRecord]:
        """Return the jobs that an id names: itself, or those of an array."""
        if job_id in self.arrays:
            return [self.jobs[f"{job_id}.{task}"] for task in range(self.arrays[job_id])]
        return [self.jobs[job_id]] if job_id in self.jobs else []

    def _GangBound(self, bound: decisions.GangBound) -> None:  # noqa: N802 - named for the decision
        job = self.jobs[bound.job_id]
        job.attempts, job.live, job.bound_us = bound.attempt, bound, self.now_us
        job.committed_us, job.exited = self.now_us, False
        job.preempted = job.stop = None
        self.room.pop(bound.job_id, None)
        self.reserved.pop(bound.job_id, None)
        for place, share in enumerate(bound.shares):
            self.held[bound.job_id, bound.attempt, place] = Held(bound, share, self.now_us)
            self.charges.change(job.spec.queue, self.now_us, milli_of(share))

    def _AttemptStopOrdered(self, stop: decisions.AttemptStopOrdered) -> None:  # noqa: N802
        self.jobs[stop.job_id].stop = stop

    def _PreemptionOrdered(self, order: decisions.PreemptionOrdered) -> None:  # noqa: N802
        job = self.jobs[order.job_id]
        job.preempted = order
        job.preemptions += order.reason not in {"held", "retried"}
        if order.claimant is not None:
            self.orders.setdefault(order.claimant, []).append(order.job_id)
            self.evictions.add((order.job_id, order.claimant, order.reason))

    def _CheckpointCommitted(self, committed: decisions.CheckpointCommitted) -> None:  # noqa: N802
        if self._is_live(committed.job_id, committed.attempt):
            self.jobs[committed.job_id].committed_us = self.now_us

    def _AttemptEnded(self, ended: decisions.AttemptEnded | decisions.AttemptPreempted) -> None:  # noqa: N802
        job = self.jobs[ended.job_id]
        for key, held in self.held.items():
            if key[:2] == (ended.job_id, ended.attempt):
                self.charges.change(job.spec.queue, self.now_us, -milli_of(held.share))
        job.attempt_over(self.now_us)

    _AttemptPreempted = _AttemptEnded

    def _JobRequeued(self, requeued: decisions.JobRequeued) -> None:  # noqa: N802
        job = self.jobs[requeued.job_id]
        job.waits_since_us, job.waited_us = self.now_us, 0

    def _JobEnded(self, ended: decisions.JobEnded) -> None:  # noqa: N802
        if ended.job_id in self.jobs:  # else it is an array
            self.jobs[ended.job_id].ended = ended
        self.room.pop(ended.job_id, None)
        self.reserved.pop(ended.job_id, None)

    def _NodeQuarantined(self, decision: decisions.NodeQuarantined) -> None:  # noqa: N802
        self.nodes[decision.node_id].quarantined = True

    def _NodeCheckOrdered(self, decision: decisions.NodeCheckOrdered) -> None:  # noqa: N802
        self.nodes[decision.node_id].check_index = decision.check_index

    def _NodeReleased(self, decision: decisions.NodeReleased) -> None:  # noqa: N802
        self.nodes[decision.node_id].quarantined = False

    def _RoomHeld(self, room: decisions.RoomHeld) -> None:  # noqa: N802
        self.room[room.job_id] = room
        self.orders.pop(room.job_id, None)

    def _RoomReleased(self, released: decisions.RoomReleased) -> None:  # noqa: N802
        self.room.pop(released.job_id, None)

    def _NodesReserved(self, reserved: decisions.NodesReserved) -> None:  # noqa: N802
        self.reserved[reserved.job_id] = reserved

    def _ReservationDropped(self, dropped: decisions.ReservationDropped) -> None:  # noqa: N802
        self.reserved.pop(dropped.job_id, None)

    # --- what follows ---

    def on_node(self, node_id: str) -> list[Held]:
        """Return what is held on a node."""
        return [held for held in self.held.values() if held.share.node_id == node_id]
