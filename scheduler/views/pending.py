"""Pending jobs in groups of which only the first is ever tried, and the shapes for which there was no room.

The jobs of a group are alike in all that decides when and whether they start, but for their place in the line. A shape
that failed fails again until a node has more free that could hold it.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from gangline.events.policy import Policy
from gangline.scheduler.elastic import least
from gangline.scheduler.fleet import Fleet
from gangline.scheduler.levels import level_of
from gangline.scheduler.shapes import Shape, is_gang, shape_of
from gangline.scheduler.state import Job, State
from gangline.scheduler.views.nodes import NodesView

Entry = tuple[int, int, int, str]
"""(what the policy's order puts first, submission, index in its array, job id)."""

NO_MAXIMUM_US = 1 << 62
"""Jobs that declare no max_runtime come last where the shortest come first."""


class GroupKey(NamedTuple):
    """What the jobs of a group have in common."""

    queue: str
    preemptible: bool
    priority: int
    level: int
    recovering: bool
    is_new_gang: bool
    """A multi-node gang that was never started."""
    shape: Shape


class PendingView:
    """`groups` holds, by key, the jobs in line, first to last."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, list[Entry]] = {}
        self.by_shape: dict[Shape, dict[GroupKey, None]] = {}
        self.failed: dict[Shape, None] = {}
        """Shapes for which there is no room at all, whoever asks."""
        self._place: dict[str, tuple[GroupKey, Entry]] = {}

    def rebuild(self, state: State, nodes: NodesView) -> None:
        """Take everything from the state."""
        self.groups, self.by_shape, self.failed, self._place = {}, {}, {}, {}
        self._fleet = nodes.fleet
        for job_id in sorted(state.pending):
            self.follow(state, "job", job_id)
        nodes.freed.clear()

    def follow(self, state: State, what: str, key: str) -> None:
        """Follow one change."""
        if what not in {"job", "room"}:
            return
        before = self._place.pop(key, None)
        if before is not None:
            self._remove(*before)
        job = state.jobs.get(key)
        if job is None or state.policy is None or not may_start(state, job):
            return
        group = key_of(state.policy, job, self._fleet)
        entry = entry_of(state.policy, job)
        line = self.groups.get(group)
        if line is None:
            line = self.groups[group] = []
            self.by_shape.setdefault(group.shape, {})[group] = None
        insort(line, entry)
        self._place[key] = (group, entry)

    def reopen(self, nodes: NodesView) -> None:
        """Let those shapes be tried again that a node could hold which has more free than before."""
        if self.failed:
            for row in dict.fromkeys(nodes.freed):
                for shape in [shape for shape in self.failed if shape.may_use(nodes.fleet, row)]:
                    del self.failed[shape]
        nodes.freed.clear()

    @property
    def waiting(self) -> int:
        """How many jobs are in line."""
        return len(self._place)

    def group_of(self, job_id: str) -> GroupKey:
        """Return the group of a job that may start."""
        return self._place[job_id][0]

    def _remove(self, group: GroupKey, entry: Entry) -> None:
        line = self.groups[group]
        del line[bisect_left(line, entry)]
        if not line:
            del self.groups[group]
            shapes = self.by_shape[group.shape]
            del shapes[group]
            if not shapes:
                del self.by_shape[group.shape]


def may_start(state: State, job: Job) -> bool:
    """Whether a job waits for nothing but room and its turn. One for which room is held is bound to that."""
    if job.held or job.cancelled or job.barriers:
        return False
    return job.job_id in state.pending and job.job_id not in state.room


def key_of(policy: Policy, job: Job, fleet: Fleet) -> GroupKey:
    """Return the group of a pending job."""
    spec = least(policy, job.spec)
    if policy.order != "fair":
        return GroupKey(
            queue=spec.queue,
            preemptible=spec.preemptible,
            priority=0,
            level=0,
            recovering=False,
            is_new_gang=False,
            shape=shape_of(spec),
        )
    gang = is_gang(spec, fleet.widest_of(spec.gpu_types))
    return GroupKey(
        queue=spec.queue,
        preemptible=spec.preemptible,
        priority=spec.priority,
        level=level_of(policy, spec, job.ran_us, is_gang=gang),
        recovering=job.recovering and "recovering_first" in policy.rules,
        is_new_gang=gang and not job.attempts,
        shape=shape_of(spec),
    )


def entry_of(policy: Policy, job: Job) -> Entry:
    """Return a job's place in the line of its group."""
    first = 0
    if policy.order == "shortest_declared":
        declared = job.spec.max_runtime_us
        first = NO_MAXIMUM_US if declared is None else declared
    return first, job.submitted, job.array_index or 0, job.job_id
