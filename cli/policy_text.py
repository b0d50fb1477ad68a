"""A policy as the TOML that `gangline policy activate` takes, and what differs between two of them."""

import json
from collections.abc import Iterator

import msgspec

from gangline.cli.units import BYTES
from gangline.events.amounts import milli_shown, time_shown
from gangline.events.policy import Policy, Queue, Quota

_NOTHING = Quota()


def policy_text(policy: Policy) -> str:
    """Return the whole policy, every number under its name, and the tree of queues."""
    lines = ["[policy]", *(f"{key} = {value}" for key, value in fields(policy).items())]
    for queue in sorted(policy.queues, key=lambda one: one.path):
        lines += ["", *_queue(queue)]
    return "\n".join(lines) + "\n"


def fields(policy: Policy) -> dict[str, str]:
    """Return the policy's fields by their keys in a file, as values of TOML."""
    found = {}
    for field in msgspec.structs.fields(Policy):
        value = getattr(policy, field.name)
        if field.name != "queues":
            found[field.name.removesuffix("_us").removesuffix("_bytes")] = _value(field.name, value)
    return found


def changes(before: Policy, after: Policy) -> Iterator[str]:
    """Yield what is not the same any more, one line each."""
    old, new = fields(before), fields(after)
    for key, value in new.items():
        if old[key] != value:
            yield f"{key}: {old[key]} -> {value}"
    trees = [{queue.path: _quotas(queue) for queue in policy.queues} for policy in (before, after)]
    for path in sorted({*trees[0], *trees[1]}):
        was, becomes = trees[0].get(path), trees[1].get(path)
        if was is None:
            yield f"queue {path}: added ({becomes})"
        elif becomes is None:
            yield f"queue {path}: removed"
        elif was != becomes:
            yield f"queue {path}: {was} -> {becomes}"


def _value(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        one = name if name.endswith("_us") else ""
        return f"[{', '.join(_value(one, item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int) and name.endswith("_us"):
        return json.dumps(time_shown(value))
    if isinstance(value, int) and name.endswith("_bytes"):
        return json.dumps(_bytes(value))
    return str(value)


def _bytes(value: int) -> str:
    """Return a size exactly, with the largest unit of which it is a whole number."""
    factor, unit = max(
        (factor, unit) for unit, factor in BYTES.items() if factor == 1 or (value and value % factor == 0)
    )
    return f"{value // factor}{unit}"


def _queue(queue: Queue) -> Iterator[str]:
    path = json.dumps(queue.path)
    yield f"[queues.{path}]"
    for quota in queue.quotas:
        if not quota.gpu_type:
            yield from _lines(quota)
    for quota in queue.quotas:
        if quota.gpu_type:
            yield f"[queues.{path}.types.{json.dumps(quota.gpu_type)}]"
            yield from _lines(quota)


def _lines(quota: Quota) -> Iterator[str]:
    if quota.guarantee_milli is not None:
        yield f"guarantee = {milli_shown(quota.guarantee_milli)}"
    if quota.ceiling_milli is not None:
        yield f"ceiling = {milli_shown(quota.ceiling_milli)}"
    if quota.weight != _NOTHING.weight:
        yield f"weight = {quota.weight}"


def _quotas(queue: Queue) -> str:
    """Return the quotas of a queue in a few words, the same for what means the same."""
    shown = []
    for quota in sorted(queue.quotas, key=lambda one: one.gpu_type):
        said = ", ".join(line.replace(" = ", " ") for line in _lines(quota))
        if said or quota.gpu_type:
            shown.append(f"{quota.gpu_type}: {said or 'nothing stated'}" if quota.gpu_type else said)
    return "; ".join(shown) or "nothing stated"
