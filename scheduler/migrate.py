"""`migrate(bytes) -> bytes`: brings the canonical state of an earlier term to the form of this code.

`STEPS[n]` takes the tables and scalars of format n, as plain values, and returns those of format n + 1. A term of the
same format starts from the same state; what else its code wants changed in it is done by raising the format.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gangline.scheduler.canonical import STATE_FORMAT, from_bytes, to_bytes
from gangline.scheduler.errors import Halted


class Plain(NamedTuple):
    """A canonical state as msgpack has it: scalar fields by name, tables by name as lists of [key, value]."""

    scalars: dict[str, Any]
    tables: dict[str, list[Any]]


def _from_1(plain: Plain) -> Plain:
    """Begin the accounts of time and of usage at the boundary: format 1 kept none."""
    now_us = plain.scalars["now_us"]
    milli: dict[str, int] = {}
    for _, job in plain.tables["jobs"]:
        job |= {"pending_since_us": now_us}
        attempt = job["attempt"]
        if attempt is None:
            continue
        attempt |= {"bound_at_us": now_us, "committed_at_us": now_us}
        queue = job["spec"]["queue"]
        for share, status in zip(attempt["bound"]["shares"], attempt["status"], strict=True):
            if not status["gone"]:
                milli[queue] = milli.get(queue, 0) + len(share["gpus"]) * share["gpu_milli"]
    usage = [[queue, {"occupied_milli": one, "since_us": now_us}] for queue, one in sorted(milli.items())]
    new: dict[str, list[Any]] = {name: [] for name in _NEW_IN_2}
    tables = {**plain.tables, **new, "usage": usage}
    return Plain({**plain.scalars, "before_us": now_us}, tables)


_NEW_IN_2 = (
    *(
        "room",
        "reserved",
        "durations",
        "arrays",
        "finished",
        "waits",
        "waited_for",
        "broken",
        "pressed",
        "timers",
        "troubled",
    ),
)
"""Tables that format 1 lacks."""

STEPS: Mapping[int, Callable[[Plain], Plain]] = MappingProxyType({1: _from_1})


def migrate(state: bytes) -> bytes:
    """Return the canonical bytes that a new term starts from.

    Raises Halted for a format that this code cannot bring to its own.
    """
    try:
        format_, scalars, tables = msgspec.msgpack.decode(state, type=tuple[int, dict[str, Any], dict[str, list[Any]]])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Halted(f"these bytes are not a state: {error}") from error
    plain = Plain(scalars, tables)
    for number in range(format_, STATE_FORMAT):
        if number not in STEPS:
            raise Halted(
                f"the term before left its state in format {format_}, this version of gangline reads {STATE_FORMAT} "
                f"and has no step from {number}: install a version in between, and open a term with it first"
            )
        plain = STEPS[number](plain)
    if format_ < STATE_FORMAT:
        state = msgspec.msgpack.encode([STATE_FORMAT, *plain])
    return to_bytes(from_bytes(state))
