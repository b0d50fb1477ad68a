"""What the values of TOML keys may be: readers that take what the parser gives, and say what would be right."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from gangline.cli import units

T = TypeVar("T")
Reader = Callable[[Any], T]

MAX_GPUS = 1_000_000
MAX_DURATION_US = 36_525 * 86_400 * 1_000_000
"""A hundred years: more is a slip of the pen, and sums of such times have to fit in 64 bits."""
MAX_SIZE_BYTES = 1 << 60
"""No cluster is so large; the core knows the real limit."""


class Bad(ValueError):
    """What is wrong with a value, or with what stands at `path` in it."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


@contextmanager
def within(*path: str | int) -> Iterator[None]:
    """Let what is found wrong be told of what stands at `path`."""
    try:
        yield
    except Bad as error:
        raise Bad(str(error), *path, *error.path) from None


def kind(value: object) -> str:
    """Return what a value is, in words."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return names.get(type(value), type(value).__name__)


def text(value: object) -> str:
    """Read text that is not empty."""
    if not isinstance(value, str):
        raise Bad(f'this is text, not {kind(value)}: put it in quotes, "..."')
    if not value:
        raise Bad("this is empty: give it, or leave it out")
    if "\0" in value:
        raise Bad("this has a NUL character: remove it")
    return value


def flag(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise Bad(f"this is true or false, not {kind(value)}")
    return value


def one_of(*allowed: str) -> Reader[str]:
    """Read one of some words."""

    def read(value: object) -> str:
        if value not in allowed:
            shown = f"'{value}'" if isinstance(value, str) else kind(value)
            raise Bad(f"this is {shown}, but has to be {' or '.join(allowed)}")
        return str(value)

    return read


def integer(least: int | None = None, most: int | None = None) -> Reader[int]:
    """Read a whole number within bounds."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Bad(f"this is a whole number, not {value if isinstance(value, float) else kind(value)}")
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = [f"at least {least:,}"] if least is not None else []
            bounds += [f"at most {most:,}"] if most is not None else []
            raise Bad(f"this is {value:,}, but has to be {' and '.join(bounds)}")
        return value

    return read


def quantity(parse: Callable[[str], int], least: int, most: int, shown: str) -> Reader[int]:
    """Read a size or a time with its unit; `shown` is `most` as people write it."""

    def read(value: object) -> int:
        if not isinstance(value, str):
            raise Bad(f"this is text with a unit, not {kind(value)}")
        try:
            number = parse(value)
        except ValueError as error:
            raise Bad(f"{value!r} is not valid here: {error}") from None
        if number < least:
            raise Bad(f"{value!r} is too little: ask for more than 0, or leave it out")
        if number > most:
            raise Bad(f"{value!r} is too much: ask for {shown} at most")
        return number

    return read


def duration_us(least: int = 0) -> Reader[int]:
    """Read a time such as "2h", in microseconds."""
    return quantity(units.parse_duration_us, least, MAX_DURATION_US, "36525d")


def size_bytes(least: int = 0) -> Reader[int]:
    """Read a size such as "16GiB"."""
    return quantity(units.parse_bytes, least, MAX_SIZE_BYTES, "1048576TiB")


def milli(value: object) -> int:
    """Read a number of GPUs or CPUs, in thousandths."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Bad(f"this is a number, not {kind(value)}")
    try:
        found = units.parse_milli(value)
    except ValueError as error:
        raise Bad(f"{value!r} is not valid here: {error}") from None
    if found > MAX_GPUS * units.MILLI:
        shown = int(value) if value == int(value) else value
        raise Bad(f"this is {shown:,}, but has to be at most {MAX_GPUS:,}")
    return found


def positive_milli(value: object) -> int:
    """Read a number above 0 of CPUs, in thousandths."""
    found = milli(value)
    if found <= 0:
        raise Bad(f"this is {value:g}, but has to be more than 0: ask for more, or leave it out")
    return found


def list_of(read_one: Reader[T], *, least: int = 0) -> Reader[tuple[T, ...]]:
    """Read a list; a single value counts as a list of one."""

    def read(value: object) -> tuple[T, ...]:
        values = value if isinstance(value, list) else [value]
        if len(values) < least:
            raise Bad(f"this has {len(values)} entries, but has to have at least {least}")
        found = []
        for place, one in enumerate(values):
            with within(*([place] if isinstance(value, list) else [])):
                found.append(read_one(one))
        return tuple(found)

    return read


def table_of(read_one: Reader[T]) -> Reader[tuple[tuple[str, T], ...]]:
    """Read a table of any keys, in its order."""

    def read(value: object) -> tuple[tuple[str, T], ...]:
        if not isinstance(value, dict):
            raise Bad(f"this is a table, not {kind(value)}")
        found = []
        for key, one in value.items():
            with within(key):
                found.append((key, read_one(one)))
        return tuple(found)

    return read


def words(value: object) -> tuple[str, ...]:
    """Read a program and its arguments."""
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise Bad(f"this cannot be split into words ({error}): write a list of them") from None
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value) or not value[0]:
        raise Bad('this is a program and its arguments: write command = ["python", "train.py"]')
    if "\0" in "".join(value):
        raise Bad("this has a NUL character: remove it")
    return tuple(value)


def fields(value: object, valid: Mapping[str, Reader[Any]], *, needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a table of known keys to what they hold. Keys that are not there are not in the result."""
    if not isinstance(value, dict):
        raise Bad(f"this is a table, not {kind(value)}")
    found = {}
    for key, one in value.items():
        if key not in valid:
            raise Bad(unknown(key, valid), key)
        with within(key):
            found[key] = valid[key](one)
    for key in needed:
        if key not in found:
            raise Bad(f"there is no {key}: give it")
    return found


def unknown(key: str, valid: Mapping[str, object]) -> str:
    """Return what to say of a key that is not among the valid ones."""
    import difflib

    near = difflib.get_close_matches(key, valid, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(sorted(valid))}"
    return f"there is no such key: {hint}"
