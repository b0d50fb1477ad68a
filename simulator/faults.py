"""Fault scripts: which nodes, GPUs, ranks and pod switches fail when, and for how long."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from gangline.events.types import Value
from gangline.schemas.errors import GanglineError

if TYPE_CHECKING:
    from gangline.simulator.world import World

Part = Literal["node", "gpu", "rank", "pod"]


class BadFault(GanglineError):
    """A fault names what the cluster or the workload does not have."""

    exit_code = 2


class Fault(Value, frozen=True, kw_only=True):
    """Something fails at a time. Which of the names count, `part` says."""

    at_us: int
    part: Part
    node_id: str = ""
    gpu: int = 0
    pod: str = ""
    job: str = ""
    """The name of a job; the fault does nothing while no job of that name runs."""
    rank: int = 0
    down_us: int = 0
    """How long a node, a GPU or a pod's nodes are gone; a rank is only killed."""


def check(faults: Sequence[Fault], world: "World") -> None:
    """Raise BadFault for a name that is not there."""
    nodes = world.agents.nodes
    pods = {node.pod for node in nodes.values()}
    jobs = {job.work.spec.name for job in world.jobs} if any(fault.part == "rank" for fault in faults) else set()
    for number, fault in enumerate(faults, 1):
        if fault.part in ("node", "gpu") and fault.node_id not in nodes:
            raise BadFault(f"fault {number}: there is no node '{fault.node_id}' in this cluster, such as {min(nodes)}")
        if fault.part == "gpu" and fault.gpu >= nodes[fault.node_id].gpus:
            raise BadFault(f"fault {number}: node '{fault.node_id}' has {nodes[fault.node_id].gpus} GPUs, from 0 on")
        if fault.part == "pod" and fault.pod not in pods:
            raise BadFault(f"fault {number}: there is no pod '{fault.pod}' in this cluster, such as {min(pods)}")
        if fault.part == "rank" and fault.job not in jobs:
            raise BadFault(f"fault {number}: there is no job '{fault.job}' in this workload")


def schedule(faults: Sequence[Fault], world: "World") -> None:
    """Let the faults happen in a world that has not begun. Raises BadFault."""
    check(faults, world)

    def happens(fault: Fault) -> None:
        agents = world.agents
        if fault.part == "node":
            agents.lose_node(fault.node_id, fault.down_us)
        elif fault.part == "pod":
            for node in agents.nodes.values():
                if node.pod == fault.pod:
                    agents.lose_node(node.node_id, fault.down_us)
        elif fault.part == "gpu":
            agents.break_gpu(fault.node_id, fault.gpu, fault.down_us)
        else:
            for job in list(agents.running.values()):
                if job.work.spec.name == fault.job:
                    agents.kill_rank(job, fault.rank)

    for fault in faults:
        world.timeline.at(fault.at_us, happens, fault)
