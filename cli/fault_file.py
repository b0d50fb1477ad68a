"""Fault scripts as TOML: what fails when in a simulation, and for how long.

[[fault]]
at = "2h"
node = "node-7"         # the whole node, or with gpu = 3 that GPU of it
down = "4h"

[[fault]]
at = "1d"
pod = "pod-3"           # the switch of a pod: all its nodes
down = "30m"

[[fault]]
at = "5h"
job = "philly-17"       # a rank of this job is killed, if it runs then
rank = 0
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangline.cli import values
from gangline.cli.toml_file import TomlFile
from gangline.cli.values import Bad, Reader
from gangline.simulator.faults import Fault

MOST = 1_000_000
DOWN_US = 4 * 3600 * 1_000_000
"""How long something is gone that does not say."""
_FIELDS: Mapping[str, Reader[Any]] = {
    "at": values.duration_us(),
    "node": values.text,
    "gpu": values.integer(0, MOST),
    "pod": values.text,
    "job": values.text,
    "rank": values.integer(0, MOST),
    "down": values.duration_us(1),
}


def read_faults(path: Path) -> tuple[Fault, ...]:
    """Return a fault script. Raises NotFound, UsageError with the line."""
    return TomlFile(path, "a fault script").read(_script)


def _script(value: object) -> tuple[Fault, ...]:
    found = values.fields(value, {"fault": values.list_of(_fault)}, needed=("fault",))
    faults: tuple[Fault, ...] = found["fault"]
    return faults


def _fault(value: object) -> Fault:
    found = values.fields(value, _FIELDS, needed=("at",))
    named = [key for key in ("node", "pod", "job") if key in found]
    if len(named) != 1:
        raise Bad(f"a fault names one of node, pod and job, this one {' and '.join(named) or 'none'}")
    (part,) = named
    for key, needs in (("gpu", "node"), ("rank", "job")):
        if key in found and part != needs:
            raise Bad(f"{key} goes with {needs}, not with {part}: leave it out", key)
    if part == "job" and "down" in found:
        raise Bad("a rank is killed, and its job goes on by itself: leave it out", "down")
    down_us = found.get("down", DOWN_US)
    if part == "job":
        return Fault(at_us=found["at"], part="rank", job=found["job"], rank=found.get("rank", 0))
    if part == "pod":
        return Fault(at_us=found["at"], part="pod", pod=found["pod"], down_us=down_us)
    if "gpu" in found:
        return Fault(at_us=found["at"], part="gpu", node_id=found["node"], gpu=found["gpu"], down_us=down_us)
    return Fault(at_us=found["at"], part="node", node_id=found["node"], down_us=down_us)
