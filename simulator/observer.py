"""What measures a simulation hears of it."""

from collections.abc import Sequence

from gangline.events.decisions import PreemptionOrdered
from gangline.events.types import Decision
from gangline.simulator.run import Run, Segment
from gangline.simulator.virtual_job import VirtualJob


class Observer:
    """Hears what happens, and does nothing; a measure overrides what it needs. Times are those of the simulation."""

    def submitted(self, at_us: int, job: VirtualJob) -> None:
        """Hear of a submission."""

    def bound(self, at_us: int, job: VirtualJob, run: Run) -> None:
        """Hear of a binding."""

    def ordered(self, at_us: int, job: VirtualJob, run: Run, decision: PreemptionOrdered) -> None:
        """Hear that a job was told to give way."""

    def left(self, at_us: int, job: VirtualJob, run: Run, node_id: str) -> None:
        """Hear that the last process of an attempt on a node is gone, with the node or without."""

    def did(self, job: VirtualJob, run: Run, segments: Sequence[Segment]) -> None:
        """Hear what an attempt did since the last such call."""

    def ended(self, at_us: int, job: VirtualJob) -> None:
        """Hear that a job is over."""

    def node_changed(self, at_us: int, node_id: str, *, up: bool) -> None:
        """Hear that a node is gone, or back."""

    def ticked(self, at_us: int, decisions: Sequence[Decision]) -> None:
        """Hear of a round, once everything that it decided is known."""
