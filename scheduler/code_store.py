"""Which code decides: a digest over what the core is made of and runs on."""

import fnmatch
import hashlib
import json
import platform
from importlib import metadata, resources
from importlib.resources.abc import Traversable

CORE = ("scheduler", "registry")
SHELL = ("loop.py", "*_loop.py", "*_store.py", "__main__.py", "explain.py")
"""Modules of the core's folders that feed it, write down what it says or put it in words, but do not change it."""

BENEATH = (
    *(
        f"events/{name}.py"
        for name in ("types", "policy", "control", "decisions", "codec", "upcasts", "ids", "terms", "amounts")
    ),
    "schemas/contracts.py",
    "schemas/fingerprints.json",
)
"""What the core imports from below; of `events.log` and `schemas.errors` it only takes names of errors."""

LIBRARIES = ("fastavro", "immutables", "msgspec", "numpy")


def code_digest() -> str:
    """Return the SHA-256, hex, over the core's sources, the contracts, and the versions of the libraries it runs on."""
    found = hashlib.sha256()
    package = resources.files("gangline")
    sources = [
        *(item for folder in CORE for item in _files(package / folder, folder) if not _is_shell(item[0])),
        *_files(package / "schemas" / "avro", "schemas/avro"),
        *((name, package / name) for name in BENEATH),
    ]
    for name, path in sorted(sources, key=lambda item: item[0]):
        data = path.read_bytes()
        found.update(f"{name} {len(data)}\n".encode() + data)
    versions = [f"{library} {metadata.version(library)}" for library in LIBRARIES]
    python = ".".join(platform.python_version_tuple()[:2])
    found.update("\n".join([*versions, f"python {python}"]).encode())
    return found.hexdigest()


def wheel_digest() -> str | None:
    """Return the SHA-256 of the installed wheel's RECORD, which lists every file with its hash; None in a checkout."""
    distribution = metadata.distribution("gangline")
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return None
    record = distribution.read_text("RECORD")
    return hashlib.sha256(record.encode()).hexdigest() if record else None


def _is_shell(name: str) -> bool:
    return any(fnmatch.fnmatch(name.rpartition("/")[2], pattern) for pattern in SHELL)


def _files(folder: Traversable, name: str) -> list[tuple[str, Traversable]]:
    if not folder.is_dir():
        return []
    found = []
    for item in folder.iterdir():
        path = f"{name}/{item.name}"
        if item.is_dir():
            found += _files(item, path)
        elif item.name.endswith((".py", ".avsc")):
            found.append((path, item))
    return found
