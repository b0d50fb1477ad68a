"""Records what a report shows of a simulation: who had how much when, what waited, what was lost.

The same observer serves every workload; GPUs count by their thousandths.
"""

from collections.abc import Iterable, Sequence

from gangline.events.decisions import PreemptionOrdered
from gangline.events.types import Decision
from gangline.simulator.observer import Observer
from gangline.simulator.room import Room
from gangline.simulator.run import Run, Segment
from gangline.simulator.series import Series
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import SECOND_US, VirtualNode

BIN_US = 600 * SECOND_US


def top_of(queue: str) -> str:
    """Return the queue just below the root, by which a report counts."""
    return queue.partition("/")[0]


class Recorder(Observer):
    """Watches one simulation. `until_us` is how far it has come."""

    def __init__(self, nodes: Iterable[VirtualNode], *, bin_us: int = BIN_US) -> None:
        self.bin_us = bin_us
        self.until_us = 0
        self.jobs: list[VirtualJob] = []
        self.allocated: dict[str, Series] = {}
        self.pending: dict[str, Series] = {}
        """Both by queue."""
        self.up = Series(bin_us)
        self.usable = Series(bin_us)
        """The smaller of what is up and what is asked for."""
        self.free = Series(bin_us)
        self.broken = Series(bin_us)
        """Free on nodes of which a part is used."""
        self.lost = Series(bin_us)
        self.spent = {"restarting": 0, "working": 0, "saving": 0, "lost": 0}
        """Thousandths of a GPU times microseconds."""
        self.preemptions: dict[str, int] = {}
        """By reason."""
        self._room = Room(nodes)
        self._allocated = self._asked = 0
        self._changed = True

    def submitted(self, at_us: int, job: VirtualJob) -> None:
        """Count a job in."""
        self.jobs.append(job)
        self._wait(at_us, job, 1)

    def bound(self, at_us: int, job: VirtualJob, run: Run) -> None:
        """Take what a gang got."""
        self._wait(at_us, job, -1)
        for share in run.bound.shares:
            self._room.take(share)
            self._allocate(at_us, job, share.gpu_milli * len(share.gpus))

    def left(self, at_us: int, job: VirtualJob, run: Run, node_id: str) -> None:
        """Give back what ranks on a node had."""
        for share in run.bound.shares:
            if share.node_id == node_id:
                self._room.give_back(share)
                self._allocate(at_us, job, -share.gpu_milli * len(share.gpus))
        if not run.shares_left:
            self._wait(at_us, job, 1)

    def ended(self, at_us: int, job: VirtualJob) -> None:
        """Count a job out."""
        self._wait(at_us, job, -1)

    def ordered(self, at_us: int, job: VirtualJob, run: Run, decision: PreemptionOrdered) -> None:
        """Count a preemption."""
        self.preemptions[decision.reason] = self.preemptions.get(decision.reason, 0) + 1

    def did(self, job: VirtualJob, run: Run, segments: Sequence[Segment]) -> None:
        """Count what GPUs were busy with."""
        milli = sum(share.gpu_milli * len(share.gpus) for share in run.bound.shares)
        for kind, from_us, to_us in segments:
            self.spent[kind] += (to_us - from_us) * milli
            if kind == "lost":
                self.lost.spend(from_us, to_us, milli)

    def node_changed(self, at_us: int, node_id: str, *, up: bool) -> None:
        """Count a node out, or in."""
        self._room.change(node_id, up=up)
        self._changed = True

    def ticked(self, at_us: int, decisions: Sequence[Decision]) -> None:
        """Look at the cluster after a round."""
        self.until_us = max(at_us, 0)
        if not self._changed:
            return
        self._changed = False
        room = self._room
        self.up.put(at_us, room.up_milli)
        self.usable.put(at_us, min(room.up_milli, self._allocated + self._asked))
        self.free.put(at_us, room.free_milli)
        self.broken.put(at_us, room.free_milli - room.open_milli)

    def _wait(self, at_us: int, job: VirtualJob, count: int) -> None:
        spec = job.work.spec
        milli = count * spec.gpus * spec.gpu_milli
        self._series(self.pending, spec.queue).add(at_us, milli)
        self._asked += milli
        self._changed = True

    def _allocate(self, at_us: int, job: VirtualJob, milli: int) -> None:
        self._series(self.allocated, job.work.spec.queue).add(at_us, milli)
        self._allocated += milli
        self._changed = True

    def _series(self, by_queue: dict[str, Series], queue: str) -> Series:
        top = top_of(queue)
        if top not in by_queue:
            by_queue[top] = Series(self.bin_us)
        return by_queue[top]
