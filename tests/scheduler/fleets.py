"""Nodes as a fleet reads them, in a line each."""

from gangline.scheduler.state import Node


def node(node_id: str, *free_milli: int, pod: str = "p", gpu_type: str = "A", cpu: int = 0, memory: int = 0) -> Node:
    """Return a node with so much free of each device; `cpu` milli and `memory` bytes are free, or lack if negative."""
    return Node(
        node_id=node_id,
        boot_id="",
        agent_id="",
        address=node_id,
        pod=pod,
        gpu_type=gpu_type,
        gpus=tuple(range(len(free_milli))),
        free_milli=free_milli,
        cpu_milli=max(cpu, 0),
        cpu_free_milli=cpu,
        memory_bytes=max(memory, 0),
        memory_free_bytes=memory,
    )
