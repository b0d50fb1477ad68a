"""Loads the Avro contracts: one file per event version, addressed by name and version, or by fingerprint.

`fingerprints.json` freezes, for each, the CRC-64-AVRO of its parsing canonical form (which goes on the wire) and the
SHA-256 of its full text (canonical form drops defaults). A contract once released never changes; a change is a new
file of the next version.
"""

import functools
import hashlib
import json
import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple, cast

import fastavro.schema

MAGIC = b"\xc3\x01"
"""Marks Avro single-object encoding; the fingerprint follows, 8 bytes, little-endian."""


class Contract(NamedTuple):
    """One version of one event."""

    name: str
    version: int
    fingerprint: bytes
    sha256: str

    @property
    def header(self) -> bytes:
        """The ten bytes that every value of this contract begins with."""
        return MAGIC + self.fingerprint


def file_name(name: str, version: int) -> str:
    """Return the file of a contract: `job_admitted.v1.avsc` for JobAdmitted, 1."""
    return f"{re.sub('(?<!^)(?=[A-Z])', '_', name).lower()}.v{version}.avsc"


def measure(schema_text: str) -> tuple[str, str]:
    """Return (CRC-64-AVRO fingerprint, SHA-256 of the text) of a schema, both hex."""
    canonical = fastavro.schema.to_parsing_canonical_form(json.loads(schema_text))
    return (
        fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"),
        hashlib.sha256(schema_text.encode()).hexdigest(),
    )


class Library:
    """The contracts of one folder: `avro/` with a file per version, and `fingerprints.json`."""

    def __init__(self, folder: Traversable) -> None:
        self._folder = folder
        self._parsed: dict[tuple[str, int], dict[str, Any]] = {}
        frozen = json.loads((folder / "fingerprints.json").read_text("utf-8"))
        self.contracts = tuple(
            Contract(name, int(version), bytes.fromhex(crc64), sha256)
            for name, versions in sorted(frozen.items())
            for version, (crc64, sha256) in sorted(versions.items(), key=lambda item: int(item[0]))
        )
        """Every contract, by name and version."""

    def text(self, name: str, version: int) -> str:
        """Return the full text of a contract."""
        return (self._folder / "avro" / file_name(name, version)).read_text("utf-8")

    def schema(self, name: str, version: int) -> dict[str, Any]:
        """Return a contract parsed for fastavro."""
        if (name, version) not in self._parsed:
            parsed = fastavro.schema.parse_schema(json.loads(self.text(name, version)))
            self._parsed[name, version] = cast("dict[str, Any]", parsed)
        return self._parsed[name, version]


@functools.cache
def packaged() -> Library:
    """Return the contracts that ship with gangline."""
    return Library(resources.files("gangline.schemas"))


def contracts() -> tuple[Contract, ...]:
    """Return every contract that ships with gangline, by name and version."""
    return packaged().contracts
