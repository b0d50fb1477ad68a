"""What a spec may say beside command and resources: how a job may be treated, and what it waits for.

preemptible = true                      # may give way to others, and so may borrow
held = false                            # wait for `gangline job release`
after = ["job-k3x7..."]                 # start when these have succeeded
array = 100                             # so many jobs of this spec, told apart by GANGLINE_ARRAY_INDEX
array_parallel = 10                     # that run at a time
interactive = false                     # end when idle ...
idle_timeout = "1h"                     # ... for so long
data = "2TiB"                           # what it will write
notify = ["https://hooks.example.org/x"]

[topology]
required = "pod"                        # or "node"
preferred = "node"

[elastic]
min = 8
max = 64
step = 8

[roles.actor]
ranks = 16
gpus = 0                                # of one GPU, a rank
cpus = 4
memory = "8GiB"
command = ["python", "act.py"]
"""

from collections.abc import Callable, Mapping
from typing import Any

from gangline.cli import units, values
from gangline.cli.values import Bad, Reader, within
from gangline.events.types import Elastic, Role

Field = Callable[[Any], dict[str, Any]]
"""What a key's value says, as fields of JobSpec."""

MAX_RANKS = 1_000_000
"""No gang is so large; the core knows the real limit."""


def field(name: str, read: Reader[Any]) -> Field:
    """Return what reads a key that is one field."""
    return lambda value: {name: read(value)}


def _url(value: object) -> str:
    found = values.text(value)
    if not _has_host(found) or not found.isprintable() or " " in found:
        raise Bad(f"{found!r} is no URL of a webhook: write https://HOST/PATH")
    return found


def _has_host(url: str) -> bool:
    from urllib.parse import urlsplit

    if not url.startswith(("http://", "https://")):
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port  # read when asked for
    except ValueError:  # brackets that do not close, a port that is none
        return False
    return bool(parts.hostname)


def _topology(value: object) -> dict[str, Any]:
    within = values.one_of("none", "node", "pod")
    found = values.fields(value, {"required": within, "preferred": within})
    return {f"topology_{key}": one for key, one in found.items()}


def _elastic(value: object) -> dict[str, Any]:
    count = values.integer(1, values.MAX_GPUS)
    found = values.fields(value, {"min": count, "max": count, "step": count}, needed=("min", "max"))
    elastic = Elastic(min_gpus=found["min"], max_gpus=found["max"], step_gpus=found.get("step", 1))
    return {"elastic": elastic}


def _role_gpus(value: object) -> int:
    milli = values.milli(value)
    if not 0 <= milli <= units.MILLI:
        raise Bad(f"this is {value}, but a rank of a role has at most one GPU: ask for 0 to 1")
    return milli


def _roles(value: object) -> dict[str, Any]:
    roles = []
    for name, table in values.table_of(lambda one: one)(value):
        with within(name):
            found = values.fields(table, _ROLE, needed=("ranks",))
        names = {"gpus": "gpu_milli", "cpus": "cpu_milli", "memory": "memory_bytes"}
        roles.append(Role(name=name, **{names.get(key, key): one for key, one in found.items()}))
    return {"roles": tuple(roles)}


_ROLE: Mapping[str, Reader[Any]] = {
    "ranks": values.integer(1, MAX_RANKS),
    "gpus": _role_gpus,
    "cpus": values.positive_milli,
    "memory": values.size_bytes(1),
    "command": values.words,
}

OPTIONS: Mapping[str, Field] = {
    "preemptible": field("preemptible", values.flag),
    "held": field("held", values.flag),
    "after": field("after", values.list_of(values.text)),
    "array": field("array", values.integer(1, MAX_RANKS)),
    "array_parallel": field("array_parallel", values.integer(1, MAX_RANKS)),
    "interactive": field("interactive", values.flag),
    "idle_timeout": field("idle_timeout_us", values.duration_us(1)),
    "data": field("data_bytes", values.size_bytes()),
    "notify": field("notify", values.list_of(_url)),
    "topology": _topology,
    "elastic": _elastic,
    "roles": _roles,
}
