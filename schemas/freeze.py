"""Freezes new contracts: adds the fingerprints of new files in `avro/` to `fingerprints.json`, and changes none.

`python -m gangline.schemas.freeze`, after writing `avro/name.vN.avsc`; then `python -m tests.events.golden`.
"""

import json
import re
import sys
from importlib import resources
from pathlib import Path

from gangline.schemas.contracts import file_name, measure
from gangline.schemas.errors import GanglineError, Refused

_FILE = re.compile(r"(?P<snake>[a-z_]+)\.v(?P<version>[1-9][0-9]*)\.avsc")


def freeze(folder: Path) -> list[str]:
    """Add what is new in a folder of contracts to its `fingerprints.json`; return the names of the new files.

    Raises Refused, and adds nothing, if a frozen contract was changed or removed, if a version is missing in between,
    or if a file's name is not that of the record in it.
    """
    index = folder / "fingerprints.json"
    frozen: dict[str, dict[str, list[str]]] = json.loads(index.read_text("utf-8")) if index.exists() else {}
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted((folder / "avro").iterdir()):
        match = _FILE.fullmatch(path.name)
        text = path.read_text("utf-8")
        name = json.loads(text)["name"]
        if match is None or file_name(name, int(match["version"])) != path.name:
            raise Refused(f"avro/{path.name} holds the record {name}: name it like {file_name(name, 1)}")
        found.setdefault(name, {})[match["version"]] = list(measure(text))
    new = [
        file_name(name, int(version))
        for name, versions in found.items()
        for version in versions
        if version not in frozen.get(name, {})
    ]
    for name, versions in frozen.items():
        for version, measured in versions.items():
            now = found.get(name, {}).get(version)
            if now != measured:
                what = "is gone" if now is None else "was changed"
                raise Refused(
                    f"avro/{file_name(name, int(version))} {what}, but it is frozen, for records of it may be on a "
                    f"log: restore it, and put what is new into {file_name(name, len(versions) + 1)}"
                )
    for name, versions in found.items():
        if sorted(map(int, versions)) != list(range(1, len(versions) + 1)):
            raise Refused(f"{name} has the versions {', '.join(versions)}: number them from 1 without a gap")
    by_version = {name: dict(sorted(found[name].items(), key=lambda item: int(item[0]))) for name in sorted(found)}
    if new:
        index.write_text(json.dumps(by_version, indent=2) + "\n")
    return new


def main() -> int:
    """Freeze what is new in this checkout."""
    try:
        new = freeze(Path(str(resources.files("gangline.schemas"))))
    except GanglineError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command tells what it refuses
        return error.exit_code
    print("\n".join(f"froze {name}" for name in new) or "nothing new")  # noqa: T201 - a command says what it did
    return 0


if __name__ == "__main__":
    sys.exit(main())
