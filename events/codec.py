"""The one mapper between events and bytes: Avro single-object encoding, upcasts, and the errors of both ways."""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import fastavro
import msgspec

from gangline.events import control, decisions
from gangline.events.log import LogTooNew
from gangline.events.types import Decision, Event
from gangline.events.upcasts import UPCASTS, Upcast, chain
from gangline.schemas.contracts import MAGIC, Library, packaged
from gangline.schemas.errors import GanglineError

HEADER_BYTES = 10

_TYPES: tuple[type[Event | Decision], ...] = (
    *control.CONTROL_EVENTS,
    control.Heartbeat,
    decisions.TermOpened,
    decisions.RoundDecided,
    decisions.BindingsSnapshot,
    *decisions.DECISIONS,
)

type_of: Mapping[str, type[Event | Decision]] = {cls.__name__: cls for cls in _TYPES}
"""Every type that has a contract, by name."""


class Undecodable(GanglineError):
    """The bytes are not what their contract says; the record is quarantined."""


class Unencodable(GanglineError):
    """A value does not fit its contract: text where a number belongs, an integer beyond 64 bits."""


class _Reader(NamedTuple):
    name: str
    schema: Any
    upcasts: tuple[Upcast, ...]
    cls: type[Event | Decision]


class _Writer(NamedTuple):
    header: bytes
    schema: Any


class Codec:
    """Encodes the newest version of every event, decodes all versions. Contracts are parsed when first met."""

    def __init__(
        self,
        library: Library | None = None,
        steps: Mapping[tuple[str, int], Upcast] = UPCASTS,
        types: Mapping[str, type[Event | Decision]] = type_of,
    ) -> None:
        """Take the contracts that ship with gangline, unless given others with their upcasts and types."""
        self._library = library or packaged()
        self._steps = steps
        self._types = types
        self._by_header = {contract.header: contract for contract in self._library.contracts}
        self._newest = {contract.name: contract for contract in self._library.contracts}
        self._readers: dict[bytes, _Reader] = {}
        self._writers: dict[type, _Writer] = {}

    def encode(self, event: Event | Decision) -> bytes:
        """Return the bytes of an event or decision. Raises Unencodable."""
        writer = self._writers.get(type(event)) or self._add_writer(type(event))
        buffer = io.BytesIO()
        buffer.write(writer.header)
        try:
            # Deterministic order: maps are written sorted, whatever order they were filled in.
            fields = msgspec.to_builtins(event, builtin_types=(bytes,), order="deterministic")
            fastavro.schemaless_writer(buffer, writer.schema, fields)
        except (TypeError, ValueError, OverflowError, KeyError, AttributeError) as error:
            raise Unencodable(f"{type(event).__name__} does not fit its contract: {error}") from error
        return buffer.getvalue()

    def decode(self, value: bytes) -> Event | Decision:
        """Return the event in `value`, brought to its newest version.

        Raises Undecodable for bytes that do not follow their contract, LogTooNew for a contract that this version of
        gangline does not have.
        """
        reader = self._readers.get(value[:HEADER_BYTES]) or self._add_reader(value)
        buffer = io.BytesIO(value)
        buffer.seek(HEADER_BYTES)
        try:
            fields = cast("dict[str, Any]", fastavro.schemaless_reader(buffer, reader.schema, None))
            if buffer.tell() != len(value):
                raise Undecodable(f"{reader.name}: {len(value) - buffer.tell()} bytes too many")
            for upcast in reader.upcasts:
                fields = upcast(fields)
            return msgspec.convert(fields, reader.cls)
        # What fastavro raises on malformed bytes is not documented; none of these come from anything else here.
        except (
            EOFError,
            ValueError,
            IndexError,
            TypeError,
            OverflowError,
            MemoryError,
            msgspec.ValidationError,
        ) as error:
            raise Undecodable(f"{reader.name}: {error!r}") from error

    def header_of(self, cls: type[Event | Decision]) -> bytes:
        """Return the ten bytes that values of the newest version of a type begin with."""
        return (self._writers.get(cls) or self._add_writer(cls)).header

    def _add_reader(self, value: bytes) -> _Reader:
        if value[:2] != MAGIC or len(value) < HEADER_BYTES:
            raise Undecodable("not in Avro single-object encoding (it does not begin with C3 01)")
        contract = self._by_header.get(value[:HEADER_BYTES])
        if contract is None:
            raise LogTooNew(
                f"a record has the contract {value[2:HEADER_BYTES].hex()}, which this version of gangline does not "
                "know: it was written by a newer one; install that version or a later one"
            )
        steps = chain(contract.name, contract.version, self._newest[contract.name].version, self._steps)
        schema = self._library.schema(contract.name, contract.version)
        reader = _Reader(contract.name, schema, steps, self._types[contract.name])
        self._readers[contract.header] = reader
        return reader

    def _add_writer(self, cls: type) -> _Writer:
        contract = self._newest.get(cls.__name__)
        if contract is None:
            raise Unencodable(f"{cls.__name__} has no contract")
        writer = _Writer(contract.header, self._library.schema(contract.name, contract.version))
        self._writers[cls] = writer
        return writer


_codec = Codec()
encode = _codec.encode
decode = _codec.decode
header_of = _codec.header_of
