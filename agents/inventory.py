"""What a node has: GPUs through NVML or as declared, CPU and memory within this process's limits, boot id, address."""

import os
import socket
from pathlib import Path

import psutil

from gangline.events.types import Gpu, Value
from gangline.schemas.errors import UsageError

DECLARED = "declared"
"""The GPU type of slots that are no devices, unless they are given another."""

DEFAULT_POD = "pod-0"

_CGROUP = Path("/sys/fs/cgroup")
_DOCUMENTATION_ADDRESS = ("192.0.2.1", 9)
"""RFC 5737: belongs to nobody. To ask for the route to it sends nothing."""


class Inventory(Value, frozen=True, kw_only=True):
    """A node as it registers. `devices` says whether its GPUs are hardware that CUDA can be pointed at."""

    node_id: str
    boot_id: str
    address: str
    pod: str
    gpu_type: str
    gpus: tuple[Gpu, ...]
    devices: bool
    cpu_milli: int
    memory_bytes: int


def take(
    *,
    node_id: str | None = None,
    address: str | None = None,
    pod: str = DEFAULT_POD,
    gpus: int | None = None,
    gpu_type: str | None = None,
) -> Inventory:
    """Return what this node has.

    `gpus` declares slots where there are no GPUs, and offers only the first ones where there are. With the type
    "declared" it declares slots beside GPUs, too; ranks see no GPU then. Raises UsageError for what cannot be.
    """
    if gpus is not None and gpus < 1:
        raise UsageError(f"--gpus {gpus}: a node offers at least 1 GPU or slot")
    found_type, found = ("", ()) if gpu_type == DECLARED else installed_gpus()
    if not found and gpus is None:
        raise UsageError("no GPU was found through NVML on this node: declare slots with --gpus N")
    if found and gpus is not None and gpus > len(found):
        raise UsageError(
            f"--gpus {gpus}: this node has {len(found)} GPUs; offer at most these, or declare slots without GPUs "
            f"with --gpu-type {DECLARED}"
        )
    offered = found[:gpus] if found else tuple(Gpu(index=index) for index in range(gpus or 0))
    return Inventory(
        node_id=node_id or socket.gethostname(),
        boot_id=boot_id(),
        address=address or own_address(),
        pod=pod,
        gpu_type=gpu_type or found_type or DECLARED,
        gpus=offered,
        devices=bool(found) or gpu_type != DECLARED,
        cpu_milli=cpu_milli(),
        memory_bytes=memory_bytes(),
    )


def installed_gpus() -> tuple[str, tuple[Gpu, ...]]:
    """Return the model and the GPUs that NVML finds, in the order of their PCI addresses; none without a driver."""
    import pynvml  # noqa: PLC0415 - most machines that this runs on in tests have no use for it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "", ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        gpus = tuple(
            Gpu(
                index=index,
                uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
                memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for index, handle in enumerate(handles)
        )
        model = str(pynvml.nvmlDeviceGetName(handles[0])) if handles else ""
    finally:
        pynvml.nvmlShutdown()
    return model, gpus


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def own_address() -> str:
    """Return the address that this machine's default route leaves from, else loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_DOCUMENTATION_ADDRESS)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def cpu_milli() -> int:
    """Return the CPU that this process may use, thousandths of a core: its affinity, and its cgroup's quota."""
    available = len(os.sched_getaffinity(0)) * 1000
    try:
        quota, period = (_CGROUP / "cpu.max").read_text("ascii").split()
        return min(available, int(quota) * 1000 // int(period))
    except (OSError, ValueError):
        return available  # no quota ("max"), or not a cgroup v2 of our own


def memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, and its cgroup's limit."""
    available = int(psutil.virtual_memory().total)
    try:
        return min(available, int((_CGROUP / "memory.max").read_text("ascii")))
    except (OSError, ValueError):
        return available
