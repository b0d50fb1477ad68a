"""All of a job's spec that decides where it fits."""

from typing import NamedTuple

from gangline.events.types import WHOLE_MILLI, JobSpec, Role, Topology
from gangline.scheduler.fleet import Fleet


class Shape(NamedTuple):
    """What is asked of the cluster; CPU and memory are per rank."""

    gpus: int
    gpu_milli: int
    nodes: int | None
    gpu_types: tuple[str, ...]
    cpu_milli: int
    memory_bytes: int
    required: Topology
    preferred: Topology
    roles: tuple[Role, ...]

    @property
    def milli(self) -> int:
        """Thousandths of GPUs in all, those of roles included."""
        return self.gpus * self.gpu_milli + sum(role.ranks * role.gpu_milli for role in self.roles)

    def may_use(self, fleet: Fleet, row: int) -> bool:
        """Whether a part of it could lie on this node, as far as GPUs go; a wrong yes costs a search only."""
        if self.gpus == 0 or self.roles:
            return True
        if self.gpu_milli < WHOLE_MILLI:
            return int(fleet.free[row].max(initial=0)) >= self.gpu_milli
        free = int(fleet.whole_free[row])
        if self.nodes is not None:
            return free >= self.gpus // self.nodes
        # A larger gang takes whole nodes of one size, and what they leave over anywhere.
        return free >= min(self.gpus, int(fleet.devices[row])) or any(
            0 < self.gpus % size <= free for size in fleet.node_sizes
        )


def shape_of(spec: JobSpec) -> Shape:
    """Return the shape of a spec."""
    return Shape(
        spec.gpus,
        spec.gpu_milli,
        spec.nodes,
        spec.gpu_types,
        spec.cpu_milli,
        spec.memory_bytes,
        spec.topology_required,
        spec.topology_preferred,
        spec.roles,
    )


def is_gang(spec: JobSpec, widest: int) -> bool:
    """Whether a job needs several nodes, where the widest node of a type that it accepts has so many devices."""
    return spec.gpus > widest or (spec.nodes is not None and spec.nodes > 1)
