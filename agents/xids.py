"""Hears of GPU errors from the driver as they come, and keeps those that mean broken hardware.

The numbers are NVIDIA's (XID errors, https://docs.nvidia.com/deploy/xid-errors/). Most XIDs (13, 31, 43, ...) are what
a program did wrong, and say nothing against the GPU.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gangline.agents.inventory import Inventory

BROKEN: Mapping[int, str] = MappingProxyType(
    {
        48: "an uncorrectable memory error",
        62: "its internal micro-controller halted",
        64: "a memory row that cannot be remapped",
        74: "an NVLink error",
        79: "it has fallen off the bus",
        92: "many single-bit memory errors",
        95: "an uncontained memory error",
        109: "a context switch that timed out",
        119: "its system processor does not answer",
        120: "an error of its system processor",
        140: "an unrecovered memory error",
    }
)
"""XIDs after which a GPU needs a reset, or to be replaced."""

MAX_EVENTS = 1_000
"""Taken in at a time; a GPU in a storm of errors must not hold up the examination."""

_log = logging.getLogger(__name__)


class XidWatch:
    """What the driver has said against the GPUs of a node since the agent started; nothing where there are none."""

    def __init__(self, inventory: Inventory) -> None:
        self._index = {gpu.uuid: gpu.index for gpu in inventory.gpus if gpu.uuid and inventory.devices}
        self._broken: dict[int | None, str] = {}
        self._events: Any = None
        if self._index:
            self._register()

    def broken(self) -> dict[int | None, str]:
        """Return the GPUs that are broken, by index, with the reason."""
        if self._events is None:
            return {}
        import pynvml  # noqa: PLC0415 - most machines that this runs on in tests have no use for it

        for _ in range(MAX_EVENTS):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = str(pynvml.nvmlDeviceGetUUID(event.device))
            except pynvml.NVMLError_Timeout:
                break
            except pynvml.NVMLError as error:
                _log.debug("errors of GPUs cannot be heard: %s", error)
                break
            self.note(uuid, int(event.eventData))
        return dict(self._broken)

    def note(self, uuid: str, xid: int) -> None:
        """Take in one error."""
        index = self._index.get(uuid)
        if index is not None and xid in BROKEN:
            self._broken[index] = f"GPU {index} ({uuid}) reported XID {xid}, {BROKEN[xid]}: reset or replace it"

    def close(self) -> None:
        """Stop hearing."""
        if self._events is not None:
            import pynvml  # noqa: PLC0415 - as above

            pynvml.nvmlEventSetFree(self._events)
            pynvml.nvmlShutdown()
            self._events = None

    def _register(self) -> None:
        import pynvml  # noqa: PLC0415 - as above

        try:
            pynvml.nvmlInit()
            self._events = pynvml.nvmlEventSetCreate()
            for uuid in self._index:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError as error:
            _log.warning("errors of GPUs (XIDs) cannot be heard as they come, only looked for: %s", error)
