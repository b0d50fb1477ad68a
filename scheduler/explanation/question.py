"""A question about a pending job: the state, its indexes, and what the job asks of one node."""

from typing import NamedTuple

from gangline.events.policy import Policy
from gangline.events.types import WHOLE_MILLI, JobSpec
from gangline.scheduler.elastic import least
from gangline.scheduler.fit import Ask
from gangline.scheduler.shapes import Shape, shape_of
from gangline.scheduler.state import Job, Node, State
from gangline.scheduler.views import Views


class Question(NamedTuple):
    """Who is asked about, where, by which policy."""

    state: State
    policy: Policy
    views: Views
    job: Job

    @property
    def spec(self) -> JobSpec:
        """What the job asks for; of an elastic one the least that it starts with."""
        return least(self.policy, self.job.spec)

    @property
    def shape(self) -> Shape:
        """The shape of that."""
        return shape_of(self.spec)

    @property
    def fleet(self) -> list[Node]:
        """The nodes, in their order."""
        return [self.state.nodes[node_id] for node_id in self.state.node_order]

    def takes(self, node: Node) -> bool:
        """Whether the node is of a type that the job accepts."""
        return not self.shape.gpu_types or node.gpu_type in self.shape.gpu_types

    def widest(self) -> int:
        """Return the most devices of a node of a type that it accepts."""
        return max((len(node.gpus) for node in self.fleet if self.takes(node)), default=0)

    def of_one_node(self, widest: int, node: Node) -> Ask:
        """Return what it asks of each node, or of this one if it takes whole nodes."""
        shape = self.shape
        if shape.nodes is not None and shape.nodes > 1:
            gpus = shape.gpus // shape.nodes
        elif shape.nodes == 1 or shape.gpus <= widest:
            gpus = shape.gpus
        else:
            gpus = max(len(node.gpus), 1)
        ranks = max(gpus, 1)
        milli = shape.gpu_milli if gpus <= 1 else WHOLE_MILLI
        return Ask(gpus, milli, shape.cpu_milli * ranks, shape.memory_bytes * ranks)
