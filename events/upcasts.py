"""Pure steps that bring the fields of an old event version to the next one.

`UPCASTS["JobAdmitted", 1]` takes the fields as version 1 has them and returns those of version 2. A version without
its upcast fails the tests.
"""

from collections.abc import Callable, Mapping
from typing import Any

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: Mapping[tuple[str, int], Upcast] = {}


def chain(
    name: str, version: int, newest: int, steps: Mapping[tuple[str, int], Upcast] = UPCASTS
) -> tuple[Upcast, ...]:
    """Return the steps from `version` to `newest`. Raises KeyError if one is missing."""
    return tuple(steps[name, step] for step in range(version, newest))
