"""Pure steps that bring the fields of an old event version to the next one.

`UPCASTS["JobAdmitted", 1]` takes the fields as version 1 has them and returns those of version 2. A version without
its upcast fails the tests.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


def _added_with_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave to the type what is new: it has a default for every field that its earlier versions lack."""
    return fields


UPCASTS: Mapping[tuple[str, int], Upcast] = MappingProxyType(
    {
        ("SubmitJob", 1): _added_with_defaults,
        ("ActivatePolicy", 1): _added_with_defaults,
        ("GangBound", 1): _added_with_defaults,
        ("AttemptStopOrdered", 1): _added_with_defaults,
        ("JobRequeued", 1): _added_with_defaults,
        ("LaunchFailed", 1): _added_with_defaults,
        ("NodeRegistered", 1): _added_with_defaults,
    }
)


def chain(
    name: str, version: int, newest: int, steps: Mapping[tuple[str, int], Upcast] = UPCASTS
) -> tuple[Upcast, ...]:
    """Return the steps from `version` to `newest`. Raises KeyError if one is missing."""
    return tuple(steps[name, step] for step in range(version, newest))
