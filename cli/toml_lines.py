"""Reads TOML so that mistakes are told by line, found with the parser itself: no second grammar to keep right."""

import re
import tomllib
from typing import Any

from gangline.schemas.errors import UsageError

_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_AT_END = " (at end of document)"


def line_of(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line (from 1) where the statement that sets `path` begins; that of its nearest table if it is absent.

    A number in the path is a place in a list.

    Prefixes of whole statements parse, others do not: so the statement that first gives the key begins behind the
    longest prefix without it. A text of L lines is parsed L times, which only an error message waits for.
    """
    lines = text.splitlines(keepends=True)
    while path:
        begins = 1
        for count in range(1, len(lines) + 1):
            try:
                parsed = tomllib.loads("".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                continue
            if _has(parsed, path):
                return begins
            begins = count + 1
        path = path[:-1]
    return 1


def shown(path: tuple[str | int, ...]) -> str:
    """Return a path as people write it: jobs.train.gpus, events[2].node, places in lists from 0 on."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def decoded(data: bytes, name: str, error_type: type[UsageError] = UsageError) -> str:
    """Return the text of a file; `name` stands in messages. Raises `error_type` with the line if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise error_type(f"{name}:{line}: the file is not UTF-8: save it as UTF-8") from error


def parsed(text: str, name: str, error_type: type[UsageError] = UsageError) -> dict[str, Any]:
    """Return the table of a text; `name` stands in messages. Raises `error_type` with the line if it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, message = _syntax_error(text, error)
        raise error_type(f"{name}:{line}: this is no TOML: {message}") from error


def _syntax_error(text: str, error: tomllib.TOMLDecodeError) -> tuple[int, str]:
    """Return the line of a syntax error, and what is wrong."""
    message = str(error)
    if found := _AT_LINE.search(message):
        return int(found[1]), f"{message[: found.start()]} (column {found[2]})"
    return max(len(text.splitlines()), 1), message.removesuffix(_AT_END) + " (the file ends too soon)"


def _has(parsed: dict[str, Any], path: tuple[str | int, ...]) -> bool:
    here: Any = parsed
    for key in path:
        if isinstance(here, list):
            if not isinstance(key, int) or key >= len(here):
                return False
        elif not isinstance(here, dict) or key not in here:
            return False
        here = here[key]
    return True
