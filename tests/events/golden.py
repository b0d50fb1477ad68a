"""Freezes the bytes of new contracts: `python -m tests.events.golden` adds to `golden.json`, and changes nothing in it.

Of every version of every contract it holds the bytes of two values (see `samples`), as hex.
"""

import io
import json
from pathlib import Path

import fastavro

from gangline.schemas.contracts import Contract, Library, packaged
from tests.events.samples import sample

FILE = Path(__file__).with_name("golden.json")
KINDS = ("least", "full")


def name_of(contract: Contract) -> str:
    return f"{contract.name}.v{contract.version}"


def encoded(library: Library, contract: Contract, kind: str) -> bytes:
    """Return the bytes of a contract's sample, written by fastavro alone."""
    buffer = io.BytesIO()
    fields = sample(json.loads(library.text(contract.name, contract.version)), full=kind == "full")
    fastavro.schemaless_writer(buffer, library.schema(contract.name, contract.version), fields)
    return contract.header + buffer.getvalue()


def load() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def main() -> None:
    golden, library = load(), packaged()
    for contract in library.contracts:
        if name_of(contract) not in golden:
            golden[name_of(contract)] = {kind: encoded(library, contract, kind).hex() for kind in KINDS}
            print("froze the bytes of", name_of(contract))
    FILE.write_text(json.dumps(dict(sorted(golden.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
