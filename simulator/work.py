"""What virtual jobs will do, and the nodes that they run on: the workload, the same whatever the policy."""

from collections.abc import Callable, Sequence
from typing import Literal

from gangline.events.types import GIB, JobSpec, Value

SECOND_US = 1_000_000


class Work(Value, frozen=True, kw_only=True):
    """One job: when it is submitted, what it asks for, and how it will run.

    `work_us` is what it needs on its `gpus` without any save, restart or failure.
    """

    number: int
    """Its place in the workload, and what its random numbers are keyed by."""
    submit_us: int
    """From the beginning of the simulation."""
    spec: JobSpec
    work_us: int
    save_us: int = 0
    """The pause of a save, also of the one in which it gives way."""
    save_interval_us: int | None = None
    """Work between two saves; None saves only when told to give way."""
    restart_us: int = 0
    """After every binding but the first, before work goes on."""
    fails: bool = False
    """Whether the world asks for its failures."""


class VirtualNode(Value, frozen=True, kw_only=True):
    """A node of the simulated cluster."""

    node_id: str
    pod: str = "pod-0"
    gpus: int = 8
    gpu_type: str = "GPU"
    cpu_milli: int = 128_000
    memory_bytes: int = 2_048 * GIB


class Failure(Value, frozen=True, kw_only=True):
    """How an attempt ends before its time: after how long, on which of its shares, and whether with the node."""

    after_us: int
    share: int
    node_down_us: int | None = None
    """How long the node is gone; None where only a rank fails."""


Failures = Callable[[Work, int, int, int], Failure | None]
"""(work, attempt, GPUs, shares) -> how the attempt fails, if it lasts that long. Must depend on nothing else."""

Phase = Literal[0, 1, 2]
"""What comes first at one time: completions, then arrivals, then what else happens."""
COMPLETIONS: Phase = 0
ARRIVALS: Phase = 1
OTHERS: Phase = 2


def no_failures(_work: Work, _attempt: int, _gpus: int, _shares: int) -> Failure | None:
    """Let nothing fail."""
    return None


def uniform_nodes(count: int, *, gpus: int = 8, pods: int = 1) -> Sequence[VirtualNode]:
    """Return equal nodes, so many to a pod that the pods are equal, too, but for the last."""
    size = -(-count // pods)
    return [VirtualNode(node_id=f"node-{number}", pod=f"pod-{number // size}", gpus=gpus) for number in range(count)]
