"""What a file of routes may say, key by key: the first mistake in it, where it is, and what would be right."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from gangline.agents.notifier.notice import Kind
from gangline.schemas.errors import UsageError

MAX_TIMEOUT_S = 600
MAX_KEEP_H = 8_760
"""A year."""
MAX_SHOWN_CHARACTERS = 60

_Check = Callable[[str, object], None]
"""Takes where a value stands, and the value; raises UsageError."""


def check_keys(table: Mapping[str, Any]) -> None:
    """Raise UsageError with the key of the first value of another kind than it has to be, or that is out of bounds."""
    _check_table("", table, _FILE)
    for number, route in enumerate(table.get("route", ())):
        where = f"route[{number}]"
        if not isinstance(route, dict):
            raise UsageError(f"{where} is {_kind(route)}, but has to be a table: begin it with [[route]]")
        named = f"{where} ({route['name']!r})" if isinstance(route.get("name"), str) and route["name"] else where
        if "name" not in route:
            raise UsageError(f'{where} has no name: give it one, such as name = "mail"')
        _check_table(named, route, _ROUTE)


def _check_table(where: str, table: Mapping[str, Any], checks: Mapping[str, _Check]) -> None:
    for key, value in table.items():
        place = f"{where}: {key}" if where else key
        if key not in checks:
            raise UsageError(f"{place} is no key of {'a route' if where else 'this file'}: the keys are {_or(checks)}")
        checks[key](place, value)


def _text(where: str, value: object) -> None:
    if not isinstance(value, str):
        raise UsageError(f'{where} is {_kind(value)}, but has to be text: put it in quotes, "..."')
    if not value:
        raise UsageError(f"{where} is empty: give it, or leave it out")


def _texts(where: str, value: object) -> None:
    if not isinstance(value, list):
        raise UsageError(f'{where} is {_kind(value)}, but has to be a list of text: write ["...", "..."]')
    for number, one in enumerate(value):
        _text(f"{where}[{number}]", one)


def _events(where: str, value: object) -> None:
    _texts(where, value)
    for number, one in enumerate(value if isinstance(value, list) else ()):
        if one not in get_args(Kind):
            raise UsageError(f"{where}[{number}] is {_shown(one)}, but has to be {_or(get_args(Kind))}")


def _headers(where: str, value: object) -> None:
    if not isinstance(value, dict):
        raise UsageError(
            f'{where} is {_kind(value)}, but has to be a table: write {{ Authorization = "$NAME_OF_A_VARIABLE" }}'
        )
    for name, one in value.items():
        _text(f"{where}.{name}", one)


def _number(unit: str, most: float) -> _Check:
    def check(where: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{where} is {_kind(value)}, but has to be a number of {unit}: write it without quotes")
        if not 0 < value <= most:
            raise UsageError(f"{where} is {value:g}, but has to be more than 0 and at most {most:,} {unit}")

    return check


def _routes(where: str, value: object) -> None:
    if not isinstance(value, list):
        raise UsageError(f"{where} is {_kind(value)}, but there may be several routes: begin each with [[route]]")


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


def _or(names: Mapping[str, object] | tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"


_FILE: Mapping[str, _Check] = {"allow": _texts, "keep": _number("hours", MAX_KEEP_H), "route": _routes}
_ROUTE: Mapping[str, _Check] = {
    "name": _text,
    "url": _text,
    "command": _texts,
    "users": _texts,
    "queues": _texts,
    "jobs": _texts,
    "events": _events,
    "headers": _headers,
    "timeout": _number("seconds", MAX_TIMEOUT_S),
}
