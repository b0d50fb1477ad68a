"""Which code decides: a digest over what the core is made of and runs on."""

import hashlib
import platform
from importlib import metadata, resources
from importlib.resources.abc import Traversable

CORE = ("scheduler", "registry")
SHELL_SUFFIXES = ("loop.py", "_store.py", "__main__.py")
EVENT_MODULES = ("types.py", "control.py", "decisions.py", "codec.py", "upcasts.py", "ids.py", "terms.py")
LIBRARIES = ("fastavro", "immutables", "msgspec")


def code_digest() -> str:
    """Return the SHA-256, hex, over the core's sources, the contracts, and the versions of the libraries it runs on."""
    found = hashlib.sha256()
    package = resources.files("gangline")
    sources = [
        *(item for folder in CORE for item in _files(package / folder, folder) if not item[0].endswith(SHELL_SUFFIXES)),
        *((f"events/{name}", package / "events" / name) for name in EVENT_MODULES),
        *_files(package / "schemas" / "avro", "schemas/avro"),
        ("schemas/contracts.py", package / "schemas" / "contracts.py"),
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
    if '"editable": true' in (distribution.read_text("direct_url.json") or ""):
        return None
    record = distribution.read_text("RECORD")
    return hashlib.sha256(record.encode()).hexdigest() if record else None


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
