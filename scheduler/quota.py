"""The tree of queues: what each is guaranteed, may have at most, and weighs, per GPU type.

An unstated guarantee is what the parent's leaves, shared equally among the children that state none; the root's is the
cluster. A quota without a type holds for every type that the queue does not name.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gangline.events.amounts import milli_shown
from gangline.events.policy import Queue, Quota

MAX_SHOWN = 5
"""Queues that a message lists."""


class Limits(NamedTuple):
    """What a queue has of one GPU type, in thousandths of a GPU; no ceiling is None."""

    guarantee_milli: int
    ceiling_milli: int | None
    weight: int


def prefixes(path: str) -> tuple[str, ...]:
    """Return the paths of a queue and of those above it, the topmost first."""
    parts = path.split("/")
    return tuple("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def parent(path: str) -> str:
    """Return the path of the queue above; empty for a topmost one."""
    return path.rpartition("/")[0]


class Tree:
    """The limits of every queue, resolved for the GPUs that there are."""

    def __init__(self, queues: Sequence[Queue], cluster_milli: Mapping[str, int]) -> None:
        """Take the queues and the thousandths of GPUs of each type; the queues hold together (see `faults`)."""
        self.types = tuple(sorted(cluster_milli))
        # A log from before trees may name queues without those above them.
        self.paths = tuple(sorted({path for queue in queues for path in prefixes(queue.path)}))
        self.children: dict[str, list[str]] = {"": []}
        for path in self.paths:
            self.children.setdefault(path, [])
            self.children.setdefault(parent(path), []).append(path)
        self._quotas = {queue.path: {quota.gpu_type: quota for quota in queue.quotas} for queue in queues}
        self._limits: dict[tuple[str, str], Limits] = {}
        self._prefixes = {path: prefixes(path) for path in self.paths}
        for gpu_type in self.types:
            self._resolve("", gpu_type, cluster_milli[gpu_type])
            for path in self.paths:  # sorted, so that those above come first
                self._resolve(path, gpu_type, self._limits[path, gpu_type].guarantee_milli)

    def limits(self, path: str, gpu_type: str) -> Limits:
        """Return what a queue has of a type."""
        return self._limits.get((path, gpu_type), _NO_LIMITS)

    def stated_milli(self, path: str, gpu_type: str) -> int:
        """Return what a queue is guaranteed of a type by its own words; 0 if it has what is left."""
        return self._quota(path, gpu_type).guarantee_milli or 0

    def prefixes(self, path: str) -> tuple[str, ...]:
        """Return the paths of a queue and of those above it; a queue that is gone has itself only."""
        return self._prefixes.get(path) or prefixes(path)

    def weight(self, path: str) -> int:
        """Return the largest weight that a queue has for any type."""
        return max((self.limits(path, gpu_type).weight for gpu_type in self.types), default=1)

    def _resolve(self, above: str, gpu_type: str, guarantee_milli: int) -> None:
        stated: dict[str, int] = {}
        for path in self.children[above]:
            quota = self._quota(path, gpu_type)
            if quota.guarantee_milli is not None:
                stated[path] = quota.guarantee_milli
        silent = len(self.children[above]) - len(stated)
        rest = max(guarantee_milli - sum(stated[path] for path in sorted(stated)), 0)
        for path in self.children[above]:
            quota = self._quota(path, gpu_type)
            has = stated[path] if path in stated else rest // silent
            self._limits[path, gpu_type] = Limits(has, quota.ceiling_milli, quota.weight)

    def _quota(self, path: str, gpu_type: str) -> Quota:
        quotas = self._quotas.get(path, _NO_QUOTAS)
        return quotas.get(gpu_type) or quotas.get("") or _NO_QUOTA


_NO_QUOTA = Quota()
_NO_QUOTAS: Mapping[str, Quota] = MappingProxyType({})
_NO_LIMITS = Limits(0, None, 1)
"""Of a queue or a GPU type that is gone."""


class Fault(NamedTuple):
    """What does not hold together: where in a file it would stand, and what is wrong, with numbers and the way out."""

    keys: tuple[str, ...]
    message: str


def fault_of(queues: Sequence[Queue]) -> Fault | None:
    """Return the first thing that does not add up in a tree of queues, with its numbers; None if it holds together."""
    by_path = {queue.path: queue for queue in queues}
    for queue in queues:
        above = parent(queue.path)
        if above and above not in by_path:
            message = (
                f"queue '{queue.path}' is an orphan: there is no queue '{above}'; add that one, or rename this one"
            )
            return Fault(("queues", queue.path), message)
        names = [quota.gpu_type for quota in queue.quotas]
        for name in names:
            if names.count(name) > 1:
                message = f"queue '{queue.path}' has {names.count(name)} quotas for GPU type '{name}': keep one"
                return Fault(_keys(queue.path, name), message)
        for quota in queue.quotas:
            fault = _fault_of(queue.path, quota)
            if fault is not None:
                return fault
    for path in ["", *sorted(by_path)]:
        fault = _fault_below(path, by_path)
        if fault is not None:
            return fault
    return None


def _keys(path: str, gpu_type: str, *keys: str) -> tuple[str, ...]:
    return ("queues", path, *(("types", gpu_type) if gpu_type else ()), *keys)


def _fault_of(path: str, quota: Quota) -> Fault | None:
    of = f" of {quota.gpu_type}" if quota.gpu_type else ""
    if quota.weight <= 0:
        message = f"queue '{path}' has the weight {quota.weight}{of}: name 1 or more"
        return Fault(_keys(path, quota.gpu_type, "weight"), message)
    for name, milli in (("guarantee", quota.guarantee_milli), ("ceiling", quota.ceiling_milli)):
        if milli is not None and milli < 0:
            message = f"queue '{path}' has a {name} of {milli_shown(milli)} GPUs{of}: name 0 or more"
            return Fault(_keys(path, quota.gpu_type, name), message)
    guarantee, ceiling = quota.guarantee_milli, quota.ceiling_milli
    if guarantee is not None and ceiling is not None and ceiling < guarantee:
        message = (
            f"queue '{path}' has a ceiling of {milli_shown(ceiling)} GPUs{of}, below its guarantee of "
            f"{milli_shown(guarantee)}: raise the one or lower the other"
        )
        return Fault(_keys(path, quota.gpu_type, "ceiling"), message)
    return None


def _fault_below(path: str, by_path: Mapping[str, Queue]) -> Fault | None:
    """Return whether the children of a queue are guaranteed more than it is."""
    above = by_path.get(path)
    if above is None:
        return None
    children = [by_path[name] for name in sorted(by_path) if parent(name) == path]
    types = sorted({quota.gpu_type for queue in (above, *children) for quota in queue.quotas})
    for gpu_type in types:
        limit, own = _stated(above, gpu_type), "its own"
        if limit is None:
            limit, own = _left_by_those_above(path, gpu_type, by_path), "what those above leave it,"
        stated = [(queue.path, _stated(queue, gpu_type) or 0) for queue in children]
        total = sum(milli for _, milli in stated)
        if limit is None or total <= limit:
            continue
        parts = ", ".join(f"'{name}' {milli_shown(milli)}" for name, milli in stated[:MAX_SHOWN] if milli)
        of = f" of {gpu_type}" if gpu_type else ""
        message = (
            f"the queues below '{path}' are guaranteed {milli_shown(total)} GPUs{of} together ({parts}), more than "
            f"{own} {milli_shown(limit)}: lower theirs, or raise its own"
        )
        return Fault(_keys(path, gpu_type, "guarantee"), message)
    return None


def _left_by_those_above(path: str, gpu_type: str, by_path: Mapping[str, Queue]) -> int | None:
    """Return what a queue that states no guarantee has; None where that depends on how large the cluster is."""
    limit: int | None = None
    for name in prefixes(path):
        own = _stated(by_path[name], gpu_type)
        if own is None and limit is not None:
            beside = [_stated(by_path[one], gpu_type) for one in sorted(by_path) if parent(one) == parent(name)]
            own = max(limit - sum(milli for milli in beside if milli is not None), 0) // beside.count(None)
        limit = own
    return limit


def _stated(queue: Queue, gpu_type: str) -> int | None:
    named: Mapping[str, Quota] = MappingProxyType({quota.gpu_type: quota for quota in queue.quotas})
    quota = named.get(gpu_type) or named.get("")
    return quota.guarantee_milli if quota is not None else None
