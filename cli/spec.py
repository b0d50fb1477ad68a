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
"""

import difflib
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gangline.cli import toml_lines, units
from gangline.events.types import JobSpec
from gangline.schemas.errors import UsageError

MAX_SPEC_BYTES = 64_000
"""A spec becomes a record of `control`, of 256 kB at most; a larger file is something else."""

MAX_GPUS = 1_000_000
"""No cluster is so large; the core knows the real limit."""


class SpecError(UsageError):
    """A spec does not hold together; the text names the key and the line."""


class Asked(NamedTuple):
    """What a spec asks for; its code is still a folder."""

    spec: JobSpec
    code: Path | None


class _Bad(ValueError):
    """What is wrong with a value, or with what stands under `key` in it."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.path = () if key is None else (key,)


def read_spec(path: Path) -> "Source":
    """Return a spec file. Raises SpecError, UsageError if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        way_out = "name a spec file, or give flags and -- COMMAND"
        raise UsageError(f"{path} cannot be read ({error.strerror}): {way_out}") from error
    if len(data) > MAX_SPEC_BYTES:
        raise SpecError(f"{path} has {len(data):,} bytes, a spec has at most {MAX_SPEC_BYTES:,}: name another file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError(f"{path}:{line}: the file is not UTF-8: save it as UTF-8") from error
    return Source(text, name=str(path), folder=path.absolute().parent)


class Source:
    """The text of a spec; `name` stands in messages, relative paths begin in `folder`. Raises SpecError."""

    def __init__(self, text: str, *, name: str, folder: Path) -> None:
        self._text = text
        self._name = name
        self._folder = folder
        try:
            self.table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line, message = toml_lines.syntax_error(text, error)
            raise SpecError(f"{name}:{line}: this is no TOML: {message}") from error

    def bad(self, path: tuple[str, ...], message: str) -> UsageError:
        """Return the error for a key."""
        return SpecError(f"{self._name}:{toml_lines.line_of(self._text, path)}: {'.'.join(path)}: {message}")

    def asked(self) -> Asked:
        """Return what the spec asks for. Raises SpecError that names the key and the line."""
        return build(self.table, self.bad, folder=self._folder, name=Path(self._name).stem)


def build(
    table: Mapping[str, Any], bad: Callable[[tuple[str, ...], str], UsageError], *, folder: Path, name: str
) -> Asked:
    """Return what a table of keys asks for; `bad(path, message)` makes the error for a key."""
    fields: dict[str, Any] = {"name": name, "queue": "default"}
    resources = table.get("resources", {})
    if not isinstance(resources, dict):
        raise bad(("resources",), "this is a table: write [resources] above its keys")
    for where, valid, entries in (((), _KEYS, table), (("resources",), _RESOURCES, resources)):
        for key, value in entries.items():
            if key == "resources" and not where:
                continue
            if key not in valid:
                raise bad((*where, key), _unknown(key, where))
            try:
                fields |= valid[key](value)
            except _Bad as error:
                raise bad((*where, key, *error.path), str(error)) from None
    if "command" not in fields:
        raise bad(("command",), 'there is none: write command = ["python", "train.py"]')
    if "gpus" not in fields:
        raise bad(("resources", "gpus"), "there is none: write gpus = 1 under [resources]")
    code = fields.pop("code_folder", None)
    if (nodes := fields.get("nodes")) and fields["gpus"] % nodes:
        raise bad(("resources", "nodes"), f"{fields['gpus']} GPUs do not spread evenly over {nodes} nodes")
    if checkpoints := fields.get("checkpoints"):
        fields["checkpoints"] = _place(checkpoints, folder)
    return Asked(JobSpec(**fields), None if code is None else (folder / Path(code).expanduser()).resolve())


def _place(base: str, folder: Path) -> str:
    return base if "://" in base else (folder / Path(base).expanduser()).resolve().as_uri()


def _unknown(key: str, where: tuple[str, ...]) -> str:
    valid = [("resources", one) for one in _RESOURCES] + [(one,) for one in (*_KEYS, "resources")]
    last = {path[-1]: ".".join(path) for path in valid}
    near = difflib.get_close_matches(key, last, n=1)
    here = sorted(_RESOURCES if where else (*_KEYS, "resources"))
    hint = f"did you mean {last[near[0]]}?" if near else f"the keys are {', '.join(here)}"
    return f"there is no such key: {hint}"


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return names.get(type(value), type(value).__name__)


def _text(name: str) -> Callable[[Any], dict[str, Any]]:
    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, str):
            raise _Bad(f'this is text, not {_kind(value)}: write {name} = "..."')
        if not value:
            raise _Bad("this is empty: give it, or leave the line out")
        if "\0" in value:
            raise _Bad("this has a NUL character: remove it")
        return {name: value}

    return read


def _integer(name: str, least: int | None, most: int | None = None) -> Callable[[Any], dict[str, Any]]:
    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Bad(f"this is a whole number, not {_kind(value)}")
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = [f"at least {least:,}"] if least is not None else []
            bounds += [f"at most {most:,}"] if most is not None else []
            raise _Bad(f"this is {value:,}, but has to be {' and '.join(bounds)}")
        return {name: value}

    return read


def _quantity(name: str, parse: Callable[[str], int], least: int) -> Callable[[Any], dict[str, Any]]:
    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, str):
            raise _Bad(f"this is text with a unit, not {_kind(value)}")
        try:
            number = parse(value)
        except ValueError as error:
            raise _Bad(f"{value!r} is not valid here: {error}") from None
        if number < least:
            raise _Bad(f"{value!r} is too little: ask for more than 0, or leave the line out")
        return {name: number}

    return read


def _milli(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Bad(f"this is a number, not {_kind(value)}")
    try:
        milli = units.parse_milli(value)
    except ValueError as error:
        raise _Bad(f"{value!r} is not valid here: {error}") from None
    if milli > MAX_GPUS * units.MILLI:
        raise _Bad(f"this is {value:,}, but has to be at most {MAX_GPUS:,}")
    return milli


def _gpus(value: object) -> dict[str, Any]:
    milli = _milli(value)
    if milli <= 0:
        raise _Bad(f"this is {value}, but a job has at least a part of one GPU: ask for 1 or more, or for 0.1")
    if milli < units.MILLI:
        return {"gpus": 1, "gpu_milli": milli}
    if milli % units.MILLI:
        raise _Bad(f"this is {value}, but only one GPU can be shared: ask for a part of one, or for whole GPUs")
    return {"gpus": milli // units.MILLI}


def _cpus(value: object) -> dict[str, Any]:
    milli = _milli(value)
    if milli <= 0:
        raise _Bad(f"this is {value}, but has to be more than 0: ask for more, or leave the line out")
    return {"cpu_milli": milli}


def _gpu_types(value: object) -> dict[str, Any]:
    types = [value] if isinstance(value, str) else value
    if not isinstance(types, list) or not types or not all(isinstance(one, str) and one for one in types):
        raise _Bad('this is a type or a list of types: write gpu_type = "H100" or ["H100", "H200"]')
    return {"gpu_types": tuple(types)}


def _command(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise _Bad(f"this cannot be split into words ({error}): write a list of them") from None
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value) or not value[0]:
        raise _Bad('this is a program and its arguments: write command = ["python", "train.py"]')
    if "\0" in "".join(value):
        raise _Bad("this has a NUL character: remove it")
    return {"command": tuple(value)}


def _env(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Bad("this is a table: write [env] above its variables")
    for name, content in value.items():
        if not name or "=" in name or "\0" in name:
            raise _Bad(f"{name!r} is no name of a variable", name)
        if not isinstance(content, str) or "\0" in content:
            raise _Bad(f'this is text, not {_kind(content)}: write {name} = "..."', name)
    return {"env": dict(value)}


_KEYS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "name": _text("name"),
    "queue": _text("queue"),
    "command": _command,
    "env": _env,
    "priority": _integer("priority", -1_000_000, 1_000_000),
    "retries": _integer("retries", 0, 1_000),
    "max_runtime": _quantity("max_runtime_us", units.parse_duration_us, 1),
    "grace": _quantity("grace_us", units.parse_duration_us, 0),
    "code": _text("code_folder"),
    "checkpoints": _text("checkpoints"),
}

_RESOURCES: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "gpus": _gpus,
    "nodes": _integer("nodes", 1, 100_000),
    "gpu_type": _gpu_types,
    "cpus": _cpus,
    "memory": _quantity("memory_bytes", units.parse_bytes, 1),
}
