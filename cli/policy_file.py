"""Policies and queue trees as TOML: every field of the policy under its name, times as "10m", GPUs as numbers.

[policy]
half_life = "24h"
levels = ["8h", "80h"]
without = ["fill"]                      # or rules = [...], all that are on

[queues.vision]
guarantee = 64                          # GPUs; left out: an equal part of what the parent's other queues leave
ceiling = 128                           # left out: as much as there is
weight = 2

[queues."vision/detection".types.H100]  # of one type; the above is for every type not named
guarantee = 8
"""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from gangline.cli import values
from gangline.cli.toml_file import TomlFile
from gangline.cli.values import Bad, Reader, within
from gangline.events.policy import RULES, Order, Policy, Queue, Quota
from gangline.scheduler.rules.policy_checks import BOUNDS, fault_of
from gangline.schemas.errors import UsageError

MOST = 2**31 - 1
_QUOTA: Mapping[str, Reader[Any]] = {
    "guarantee": values.milli,
    "ceiling": values.milli,
    "weight": values.integer(0, MOST),
}
_QUOTA_FIELDS = {"guarantee": "guarantee_milli", "ceiling": "ceiling_milli", "weight": "weight"}


def read_policy(value: object) -> Policy:
    """Read a whole policy: a table with [policy] and [queues], each of which may be absent. Raises Bad."""
    found = values.fields(value, {"policy": lambda one: one, "queues": lambda one: one})
    return policy_of(found.get("policy", {}), found.get("queues"))


def refuse_policy(file: TomlFile, policy: Policy) -> None:
    """Raise UsageError with the line, if a policy that a file says does not hold together."""
    fault = fault_of(policy)
    if fault is None:
        return
    keys, said = fault.keys, file.table.get("policy", {})
    if keys[0] == "policy" and keys[-1] not in said:
        # It contradicts a default, which stands in no line.
        keys = next((("policy", key) for key in said if key in fault.message.replace(",", "").split()), keys)
    raise UsageError(file.located(keys, fault.message))


def policy_of(policy: object, queues: object = None) -> Policy:
    """Return the policy of a table of its numbers and one of its queues; None leaves the queue of a new log."""
    with within("policy"):
        found = _numbers(policy)
    if queues is None:
        return Policy(**found)
    with within("queues"):
        tree = tuple(queue(path, table) for path, table in values.table_of(lambda one: one)(queues))
    return Policy(queues=tree, **found)


def queue(path: str, table: object) -> Queue:
    """Return one queue. Raises Bad with the path in its table."""
    with within(path):
        found = values.fields(table, {**_QUOTA, "types": values.table_of(_quota)})
    types = found.pop("types", ())
    quotas = [Quota(**_named(found))] if found or not types else []
    quotas += [Quota(gpu_type=gpu_type, **_named(quota)) for gpu_type, quota in types]
    return Queue(path=path, quotas=tuple(quotas))


def _quota(value: object) -> dict[str, int]:
    return values.fields(value, _QUOTA)


def _named(quota: Mapping[str, int]) -> dict[str, Any]:
    return {_QUOTA_FIELDS[key]: value for key, value in quota.items()}


def _numbers(value: object) -> dict[str, Any]:
    readers = {key: read for key, (_, read) in _FIELDS.items()} | {"without": values.list_of(values.one_of(*RULES))}
    found = values.fields(value, readers)
    without = found.pop("without", None)
    if without is not None:
        if "rules" in found:
            raise Bad("rules names all that are on: leave the one or the other out", "without")
        found["rules"] = tuple(rule for rule in RULES if rule not in without)
    return {_FIELDS[key][0]: one for key, one in found.items()}


def _readers() -> dict[str, tuple[str, Reader[Any]]]:
    """Return by key of the file the field of the policy, and what reads it."""
    found: dict[str, tuple[str, Reader[Any]]] = {}
    for field in msgspec.structs.fields(Policy):
        name, default = field.name, field.default
        if name == "queues":
            continue
        if name == "rules":
            found[name] = (name, values.list_of(values.one_of(*RULES)))
        elif name == "order":
            found[name] = (name, values.one_of(*get_args(Order)))
        elif isinstance(default, bool):
            found[name] = (name, values.flag)
        elif name.endswith("_us"):
            read: Reader[Any] = values.duration_us()
            found[name.removesuffix("_us")] = (name, values.list_of(read) if isinstance(default, tuple) else read)
        elif name.endswith("_bytes"):
            found[name.removesuffix("_bytes")] = (name, values.size_bytes())
        else:
            found[name] = (name, values.integer(*BOUNDS[name]))
    return found


_FIELDS = _readers()
