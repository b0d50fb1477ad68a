"""Whether data of one schema can be read by another: written by the one, read by the other (FULL_TRANSITIVE)."""

import io
import itertools
import random
from collections.abc import Iterator
from typing import Any

import fastavro
from fastavro.schema import parse_schema
from fastavro.utils import generate_many

from tests.events.samples import sample

GENERATED = 50
"""Random values a pair, beside the least and the full one, which reach every branch's ends."""


def data(schema: dict[str, Any]) -> Iterator[Any]:
    yield sample(schema, full=False)
    yield sample(schema, full=True)
    random.seed(0)  # fastavro draws from the global generator
    yield from generate_many(schema, GENERATED)


def unreadable(written: dict[str, Any], read: dict[str, Any]) -> str | None:
    """Return why something written by one schema cannot be read by another, or None."""
    writer, reader = parse_schema(written), parse_schema(read)
    for value in data(written):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, writer, value)
        try:
            fastavro.schemaless_reader(io.BytesIO(buffer.getvalue()), writer, reader)
        except Exception as error:  # noqa: BLE001 - whatever it raises, it cannot be read
            return f"{type(error).__name__}: {error}"
    return None


def incompatible(versions: list[dict[str, Any]]) -> list[str]:
    """Return what cannot be read among all versions of a contract, both ways."""
    return [
        f"version {old + 1} is not readable as version {new + 1}: {why}"
        for old, new in itertools.permutations(range(len(versions)), 2)
        if (why := unreadable(versions[old], versions[new])) is not None
    ]
