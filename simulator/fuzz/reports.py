"""What agents report, as events."""

from gangline.events.control import LaunchFailed, NodeRegistered
from gangline.events.types import AttemptRef, Blame, Gpu, Meta
from gangline.simulator.fuzz.plan import Machine


def registered(
    meta: Meta, has: Machine, boot_id: str, agent_id: str, attempts: tuple[AttemptRef, ...]
) -> NodeRegistered:
    """Say that an agent has started, what its node has, and all that still runs there."""
    return NodeRegistered(
        meta=meta,
        node_id=has.node_id,
        boot_id=boot_id,
        agent_id=agent_id,
        address=f"{has.node_id}.fuzz",
        pod=has.pod,
        gpu_type=has.gpu_type,
        gpus=tuple(Gpu(index=index) for index in has.gpus),
        cpu_milli=has.cpu_milli,
        memory_bytes=has.memory_bytes,
        attempts=attempts,
        attempts_listed=True,
    )


def cannot_launch(meta: Meta, node_id: str, key: tuple[str, int], blame: Blame, *, ever: bool) -> LaunchFailed:
    """Say that a share does not start there; `ever` says whether another attempt could."""
    return LaunchFailed(
        meta=meta,
        job_id=key[0],
        attempt=key[1],
        node_id=node_id,
        reason="it does not start",
        retryable=ever,
        blame=blame,
    )
