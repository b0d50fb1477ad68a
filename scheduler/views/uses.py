"""What queues use: of each GPU type now, and of late; beside the limits that their tree gives them.

A job counts for its queue by what its attempt holds, until it is told to give way; a claimant counts by what is held
for it. So a victim's GPUs count for the claimant from the order on.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from gangline.events.policy import Policy, Queue
from gangline.events.types import WHOLE_MILLI, Share
from gangline.scheduler.quota import Tree
from gangline.scheduler.state import Job, State
from gangline.scheduler.usage import milli_of, used

Charge = tuple[tuple[str, str, int, bool], ...]
"""(queue, GPU type, thousandths of GPUs, whether preemptible) of one job."""


def tree_of(state: State, queues: Sequence[Queue]) -> Tree:
    """Return the tree of these queues for the GPUs that there are."""
    cluster: defaultdict[str, int] = defaultdict(int)
    for node_id in state.node_order:
        node = state.nodes[node_id]
        cluster[node.gpu_type] += WHOLE_MILLI * len(node.gpus)
    return Tree(queues, cluster)


class UsesView:
    """The tree for the GPUs that there are, and what each queue of it uses. All in thousandths of GPUs."""

    def __init__(self) -> None:
        self.tree = Tree((), {})
        self.use: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By (queue, GPU type); what is below a queue counts for it."""
        self.fixed: defaultdict[tuple[str, str], int] = defaultdict(int)
        """The same of jobs that are not preemptible."""
        self.charges: dict[str, Charge] = {}
        """By job."""
        self._used: tuple[int, Mapping[str, int]] = (-1, {})
        """What each queue had used of late at a tick, by the tick's index."""

    def rebuild(self, state: State) -> None:
        """Take everything from the state."""
        self.tree = tree_of(state, state.policy.queues if state.policy is not None else ())
        self.use.clear()
        self.fixed.clear()
        self.charges = {}
        for job_id in sorted(state.jobs):
            self._charge(state, job_id)
        self._used = (-1, {})

    def follow(self, state: State, what: str, key: str) -> None:
        """Follow one change."""
        if what in {"job", "room"}:
            self._charge(state, key)

    def share_of(self, state: State, policy: Policy, path: str) -> int:
        """Return what a queue, with all below it, has used of late over its weight; smaller comes first.

        It is charged to the end of the next step of decay for what it occupies now: so in one round, too, each binding
        lets the others come first.
        """
        if "fair_share" not in policy.rules:
            return 0
        if self._used[0] != state.tick_index:
            self._used = (state.tick_index, self._used_of_late(state))
        now_milli = sum(self.use[path, gpu_type] for gpu_type in self.tree.types)
        return (self._used[1].get(path, 0) + now_milli * policy.usage_step_us) * 1000 // self.tree.weight(path)

    def is_within(self, path: str, gpu_type: str, milli: int) -> bool:
        """Whether a queue stays within its guarantee with so much more."""
        return self.use[path, gpu_type] + milli <= self.tree.limits(path, gpu_type).guarantee_milli

    def allows(self, queue: str, gpu_type: str, milli: int, *, preemptible: bool) -> bool:
        """Whether ceilings let a job of a queue have so much more of a type; guarantees too, if not preemptible."""
        for path in self.tree.prefixes(queue):
            limits = self.tree.limits(path, gpu_type)
            if limits.ceiling_milli is not None and self.use[path, gpu_type] + milli > limits.ceiling_milli:
                return False
            if not preemptible and self.fixed[path, gpu_type] + milli > limits.guarantee_milli:
                return False
        return True

    def over_ceiling(self, queue: str, gpu_type: str, milli: int) -> tuple[str, int]:
        """Return the lowest queue whose ceiling so much more would exceed, and by how much one is exceeded at most."""
        lowest, most_milli = "", 0
        for path in self.tree.prefixes(queue):
            ceiling_milli = self.tree.limits(path, gpu_type).ceiling_milli
            if ceiling_milli is not None and self.use[path, gpu_type] + milli > ceiling_milli:
                lowest, most_milli = path, max(most_milli, self.use[path, gpu_type] + milli - ceiling_milli)
        return lowest, most_milli

    def has_fixed_left(self, queue: str, gpu_type: str, milli: int) -> bool:
        """Whether guarantees let jobs that are not preemptible have so much more of a type."""
        return all(
            self.fixed[path, gpu_type] + milli <= self.tree.limits(path, gpu_type).guarantee_milli
            for path in self.tree.prefixes(queue)
        )

    def uncharge(self, job_id: str) -> None:
        """Count a job for nothing until it is followed again."""
        self._add(-1, self.charges.pop(job_id, ()))

    def _used_of_late(self, state: State) -> Mapping[str, int]:
        total: defaultdict[str, int] = defaultdict(int)
        for queue, usage in sorted(state.usage.items()):
            amount = used(usage, state.now_us)
            for path in self.tree.prefixes(queue):
                total[path] += amount
        return total

    def _charge(self, state: State, job_id: str) -> None:
        before = self.charges.pop(job_id, ())
        job = state.jobs.get(job_id)
        after = charge_of(state, job) if job is not None else ()
        if after:
            self.charges[job_id] = after
        if before == after:
            return
        self._add(-1, before)
        self._add(1, after)

    def _add(self, sign: int, charge: Charge) -> None:
        for queue, gpu_type, milli, preemptible in charge:
            for path in self.tree.prefixes(queue):
                self.use[path, gpu_type] += sign * milli
                if not preemptible:
                    self.fixed[path, gpu_type] += sign * milli


def charge_of(state: State, job: Job) -> Charge:
    """Return what a job counts for."""
    room = state.room.get(job.job_id)
    shares: list[Share] = []
    if room is not None:
        shares = list(room.shares)
    elif job.attempt is not None and job.attempt.preempted is None:
        status = job.attempt.status
        shares = [share for share, one in zip(job.attempt.bound.shares, status, strict=True) if not one.gone]
    by_type: defaultdict[str, int] = defaultdict(int)
    for share in shares:
        node = state.nodes.get(share.node_id)
        if node is not None and share.gpus:
            by_type[node.gpu_type] += milli_of(share)
    spec = job.spec
    return tuple((spec.queue, gpu_type, by_type[gpu_type], spec.preemptible) for gpu_type in sorted(by_type))


def quota_is_on(policy: Policy) -> bool:
    """Whether the tree of queues limits anything."""
    return "quota" in policy.rules
