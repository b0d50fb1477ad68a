"""Examines a node, for its operator or at times: disk, memory and CPUs, and the GPUs that it has registered."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from gangline.agents import inventory
from gangline.agents.inventory import Inventory
from gangline.events.types import GIB, Gpu

LEAST_FREE_BYTES = 1 << 30
"""A disk with less has no room for a job's code and output."""

TRIED_BYTES = 1 << 20
"""So much is written to the disk, synced and read back."""


class Examined(NamedTuple):
    """What was found: `healthy` if nothing is wrong; the report says what was looked at, the faults first."""

    healthy: bool
    report: str


def examine(has: Inventory, folder: Path) -> Examined:
    """Examine the node that registered `has`, and the disk that `folder` is on."""
    faults, seen = node_faults(has, folder)
    of_gpus, seen_of_gpus = faulty_gpus(has)
    faults += of_gpus.values()
    return Examined(not faults, "; ".join(faults or [*seen, *seen_of_gpus]))


def node_faults(has: Inventory, folder: Path) -> tuple[list[str], list[str]]:
    """Return what is wrong with the node as a whole, and what was looked at and is not."""
    faults: list[str] = []
    seen: list[str] = []
    for look in (_disk, _memory, _cpus):
        look(has, folder, faults, seen)
    return faults, seen


def _disk(_has: Inventory, folder: Path, faults: list[str], seen: list[str]) -> None:
    path = folder / f".check-{os.getpid()}"
    data = os.urandom(TRIED_BYTES)
    try:
        free_bytes = shutil.disk_usage(folder).free
        try:
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            read = path.read_bytes()
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:
        faults.append(f"the disk of {folder} cannot be written and read ({error.strerror})")
        return
    if read != data:
        faults.append(f"the disk of {folder} gives back other bytes than were written")
    elif free_bytes < LEAST_FREE_BYTES:
        faults.append(
            f"the disk of {folder} has {free_bytes / GIB:.2f} GiB free, at least {LEAST_FREE_BYTES / GIB:g} are needed"
        )
    else:
        seen.append(f"{free_bytes / GIB:.0f} GiB of disk free")


def _memory(has: Inventory, _folder: Path, faults: list[str], seen: list[str]) -> None:
    found = inventory.memory_bytes()
    if found < has.memory_bytes:
        faults.append(f"it has {found / GIB:.1f} GiB of memory, {has.memory_bytes / GIB:.1f} were registered")
    else:
        seen.append(f"{found / GIB:.0f} GiB of memory")


def _cpus(has: Inventory, _folder: Path, faults: list[str], seen: list[str]) -> None:
    found = inventory.cpu_milli()
    if found < has.cpu_milli:
        faults.append(f"it has {found / 1000:g} CPUs, {has.cpu_milli / 1000:g} were registered")
    else:
        seen.append(f"{found / 1000:g} CPUs")


def faulty_gpus(has: Inventory) -> tuple[dict[int, str], list[str]]:
    """Return what is wrong with each GPU that is not well, by index, and what was looked at if all are."""
    if not has.devices or not any(gpu.uuid for gpu in has.gpus):
        return {}, [f"{len(has.gpus)} declared slots, which are no devices"]
    import pynvml  # noqa: PLC0415 - most machines that this runs on in tests have no use for it

    try:
        _, found = inventory.installed_gpus()
    except pynvml.NVMLError as error:
        return {gpu.index: f"the GPU driver does not answer ({error})" for gpu in has.gpus[:1]}, []
    uuids = {gpu.uuid for gpu in found}
    faults: dict[int, str] = {}
    for gpu in has.gpus:
        if gpu.uuid not in uuids:
            faults[gpu.index] = f"GPU {gpu.index} ({gpu.uuid}) is not found any more"
        elif broken := gpu_faults(gpu):
            faults[gpu.index] = "; ".join(broken)
    return faults, [] if faults else [f"{len(has.gpus)} GPUs as registered, without uncorrected memory errors"]


def gpu_faults(gpu: Gpu) -> list[str]:
    """Return what NVML holds against a GPU's memory: uncorrected errors since it was reset, rows it could not remap."""
    import pynvml  # noqa: PLC0415 - as above

    faults = []
    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
            errors = _or_none(
                pynvml.nvmlDeviceGetTotalEccErrors,
                handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            )
            if errors:
                faults.append(f"GPU {gpu.index} has {errors} uncorrected memory errors since it was reset: reset it")
            rows = _or_none(pynvml.nvmlDeviceGetRemappedRows, handle)
            if isinstance(rows, list | tuple) and rows[_REMAPPING_FAILED]:
                faults.append(f"GPU {gpu.index} could not remap a broken row of its memory: replace it")
            elif isinstance(rows, list | tuple) and rows[_REMAPPING_PENDING]:
                faults.append(f"GPU {gpu.index} has a row of memory to be remapped: reset it")
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        faults.append(f"GPU {gpu.index} does not answer ({error})")
    return faults


_REMAPPING_PENDING, _REMAPPING_FAILED = 2, 3
"""Of nvmlDeviceGetRemappedRows: (corrected, uncorrected, pending, failed)."""


def _or_none(ask: object, *arguments: object) -> object:
    """Ask NVML; None where this GPU or its driver knows nothing of it."""
    import pynvml  # noqa: PLC0415 - as above

    try:
        return ask(*arguments)  # type: ignore[operator] # NVML's functions are not typed
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None
