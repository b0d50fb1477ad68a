"""Job specs: TOML files, and what flags say, to the JobSpec that is submitted.

name = "train"
queue = "default"
command = ["python", "train.py"]        # or "python train.py"
code = "."                              # a folder that every attempt gets a copy of
priority = 0
retries = 3
max_runtime = "2h"
grace = "30s"
checkpoints = "file:///shared/checkpoints"

[env]
EPOCHS = "3"

[resources]
gpus = 2                                # or 0.5, a part of one
nodes = 1
gpu_type = "H100"                       # or several: ["H100", "H200"]
cpus = 4                                # a rank
memory = "16GiB"                        # a rank

What more it may say is in `gangline.cli.spec_options`.
"""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gangline.cli import toml_lines, units, values
from gangline.cli.spec_options import OPTIONS, Field, field
from gangline.cli.values import Bad
from gangline.events.types import JobSpec
from gangline.schemas.errors import UsageError

MAX_SPEC_BYTES = 64_000
"""A spec becomes a record of `control`, of 256 kB at most; a larger file is something else."""


class SpecError(UsageError):
    """A spec does not hold together; the text names the key and the line."""


class Asked(NamedTuple):
    """What a spec asks for; its code is still a folder."""

    spec: JobSpec
    code: Path | None


def read_spec(path: Path) -> "Source":
    """Return a spec file. Raises SpecError, UsageError if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        way_out = "name a spec file, or give flags and -- COMMAND"
        raise UsageError(f"{path} cannot be read ({error.strerror}): {way_out}") from error
    if len(data) > MAX_SPEC_BYTES:
        raise SpecError(f"{path} has {len(data):,} bytes, a spec has at most {MAX_SPEC_BYTES:,}: name another file")
    text = toml_lines.decoded(data, str(path), SpecError)
    return Source(text, name=str(path), folder=path.absolute().parent)


class Source:
    """The text of a spec; `name` stands in messages, relative paths begin in `folder`. Raises SpecError."""

    def __init__(self, text: str, *, name: str, folder: Path) -> None:
        self._text = text
        self._name = name
        self._folder = folder
        self.table = toml_lines.parsed(text, name, SpecError)

    def bad(self, path: tuple[str | int, ...], message: str) -> UsageError:
        """Return the error for a key."""
        return SpecError(f"{self._name}:{toml_lines.line_of(self._text, path)}: {toml_lines.shown(path)}: {message}")

    def asked(self) -> Asked:
        """Return what the spec asks for. Raises SpecError that names the key and the line."""
        return build(self.table, self.bad, folder=self._folder, name=Path(self._name).stem)


def build(
    table: Mapping[str, Any], bad: Callable[[tuple[str | int, ...], str], Exception], *, folder: Path, name: str
) -> Asked:
    """Return what a table of keys asks for; `bad(path, message)` makes the error for a key."""
    fields: dict[str, Any] = {"name": name, "queue": "default"}
    resources = table.get("resources", {})
    if not isinstance(resources, dict):
        raise bad(("resources",), "this is a table: write [resources] above its keys")
    for where, valid, entries in (((), KEYS, table), (("resources",), RESOURCES, resources)):
        for key, value in entries.items():
            if key == "resources" and not where:
                continue
            if key not in valid:
                raise bad((*where, key), _unknown(key, where))
            try:
                fields |= valid[key](value)
            except Bad as error:
                raise bad((*where, key, *error.path), str(error)) from None
    if "command" not in fields:
        raise bad(("command",), 'there is none: write command = ["python", "train.py"]')
    if "gpus" not in fields and "elastic" in fields:
        fields["gpus"] = fields["elastic"].max_gpus
    if "gpus" not in fields:
        raise bad(("resources", "gpus"), "there is none: write gpus = 1 under [resources]")
    code = fields.pop("code_folder", None)
    if fault := _spread(fields):
        raise bad(("resources", "nodes"), fault)
    if checkpoints := fields.get("checkpoints"):
        fields["checkpoints"] = _place(checkpoints, folder)
    return Asked(JobSpec(**fields), None if code is None else (folder / Path(code).expanduser()).resolve())


def _spread(fields: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the number of nodes, or None."""
    gpus, nodes = fields["gpus"], fields.get("nodes", 1)
    if fields.get("gpu_milli") and nodes > 1:
        return "a part of a GPU lies on one node: leave this out, or ask for whole GPUs"
    if gpus % nodes == 0:
        return None
    uneven = f"{gpus} GPUs do not spread evenly over {nodes} nodes"
    return f"{uneven}: name a number of nodes that divides them, or leave it out"


def _place(base: str, folder: Path) -> str:
    return base if "://" in base else (folder / Path(base).expanduser()).resolve().as_uri()


def _unknown(key: str, where: tuple[str, ...]) -> str:
    valid = [("resources", one) for one in RESOURCES] + [(one,) for one in (*KEYS, "resources")]
    last = {path[-1]: ".".join(path) for path in valid}
    near = difflib.get_close_matches(key, last, n=1)
    here = sorted(RESOURCES if where else (*KEYS, "resources"))
    hint = f"did you mean {last[near[0]]}?" if near else f"the keys are {', '.join(here)}"
    return f"there is no such key: {hint}"


def _gpus(value: object) -> dict[str, Any]:
    milli = values.milli(value)
    if milli < 0:
        raise Bad(f"this is {value:g}, but a job has no less than no GPU: ask for 1 or more, for 0.1, or for 0")
    if 0 < milli < units.MILLI:
        return {"gpus": 1, "gpu_milli": milli}
    if milli % units.MILLI:
        raise Bad(f"this is {value}, but only one GPU can be shared: ask for a part of one, or for whole GPUs")
    return {"gpus": milli // units.MILLI}


def _gpu_types(value: object) -> dict[str, Any]:
    types = [value] if isinstance(value, str) else value
    if not isinstance(types, list) or not types or not all(isinstance(one, str) and one for one in types):
        raise Bad('this is a type or a list of types: write gpu_type = "H100" or ["H100", "H200"]')
    return {"gpu_types": tuple(types)}


def _env(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Bad("this is a table: write [env] above its variables")
    for name, content in value.items():
        if not name or "=" in name or "\0" in name:
            raise Bad(f"{name!r} is no name of a variable", name)
        if not isinstance(content, str) or "\0" in content:
            raise Bad(f'this is text, not {values.kind(content)}: write {name} = "..."', name)
    return {"env": dict(value)}


KEYS: Mapping[str, Field] = {
    "name": field("name", values.text),
    "queue": field("queue", values.text),
    "command": field("command", values.words),
    "env": _env,
    "priority": field("priority", values.integer(-1_000_000, 1_000_000)),
    "retries": field("retries", values.integer(0, 1_000)),
    "max_runtime": field("max_runtime_us", values.duration_us(1)),
    "grace": field("grace_us", values.duration_us()),
    "code": field("code_folder", values.text),
    "checkpoints": field("checkpoints", values.text),
    **OPTIONS,
}

RESOURCES: Mapping[str, Field] = {
    "gpus": _gpus,
    "nodes": field("nodes", values.integer(1, 100_000)),
    "gpu_type": _gpu_types,
    "cpus": field("cpu_milli", values.positive_milli),
    "memory": field("memory_bytes", values.size_bytes(1)),
}
"""What stands under [resources]."""
