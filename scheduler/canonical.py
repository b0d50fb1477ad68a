"""The canonical bytes of a state, the same for every order in which its maps were filled, and back.

The bytes are msgpack: the scalar fields as one map, then each table as a list of [key, value] sorted by key.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_type_hints

import msgspec
from immutables import Map

from gangline.events.codec import Undecodable, decode, encode
from gangline.events.decisions import NodesReserved, RoomHeld
from gangline.events.types import Event, Outcome
from gangline.scheduler.errors import Halted
from gangline.scheduler.state import Answered, Job, JobArray, Node, State, Usage

STATE_FORMAT = 2
"""Raised with every change of these bytes; `migrate` brings older ones to it."""

_VALUE_TYPES: Mapping[str, Any] = MappingProxyType(
    {
        "commands": bytes,
        "failed_inputs": str,
        "touched": bool,
        "answers": Answered,
        "answer_order": bytes,
        "jobs": Job,
        "pending": bool,
        "deadlines": int,
        "arrays": JobArray,
        "finished": bool,
        "waits": tuple[str, ...],
        "waited_for": tuple[str, ...],
        "broken": str,
        "pressed": bool,
        "timers": int,
        "troubled": bool,
        "ended": Outcome,
        "room": RoomHeld,
        "reserved": NodesReserved,
        "durations": tuple[int, ...],
        "usage": Usage,
        "nodes": Node,
    }
)
"""Every table, and what it holds; commands as their encoded events."""

_SCALARS = tuple(name for name in State.__struct_fields__ if name not in _VALUE_TYPES and name != "changed")

_HINTS = MappingProxyType(get_type_hints(State))

_encoder = msgspec.msgpack.Encoder(order="deterministic")


def to_bytes(state: State) -> bytes:
    """Return the canonical bytes of a state."""
    scalars = {name: getattr(state, name) for name in _SCALARS}
    tables = {
        name: [[key, _plain(value)] for key, value in sorted(getattr(state, name).items())]
        for name in sorted(_VALUE_TYPES)
    }
    return _encoder.encode([STATE_FORMAT, scalars, tables])


def _plain(value: object) -> object:
    return encode(value) if isinstance(value, Event) else value


def from_bytes(data: bytes) -> State:
    """Return the state in canonical bytes of this format. Raises Halted for another one, or for what does not fit."""
    try:
        format_, scalars, tables = msgspec.msgpack.decode(data, type=tuple[int, dict[str, Any], dict[str, list[Any]]])
        if format_ != STATE_FORMAT:
            raise Halted(f"the state has format {format_}, this version of gangline reads {STATE_FORMAT}")
        fields: dict[str, Any] = {name: msgspec.convert(value, _HINTS[name]) for name, value in sorted(scalars.items())}
        for name in sorted(_VALUE_TYPES):
            fields[name] = Map((key, msgspec.convert(value, _VALUE_TYPES[name])) for key, value in tables[name])
        fields["commands"] = Map((index, decode(value)) for index, value in sorted(fields["commands"].items()))
        return State(**fields)
    except (msgspec.DecodeError, msgspec.ValidationError, Undecodable, KeyError, TypeError, ValueError) as error:
        raise Halted(f"these bytes are not a state: {error}") from error


def digest(data: bytes) -> str:
    """Return the SHA-256, hex, by which canonical bytes are named."""
    return hashlib.sha256(data).hexdigest()
