"""Names in scenarios: `node-[0-31]` stands for many, `node-0:0-3` for GPUs of a node."""

import re
from typing import NamedTuple

from gangline.cli import values
from gangline.cli.values import Bad, Reader
from gangline.simulator.scenario import Seat

_RANGE = re.compile(r"\[(\d+)-(\d+)\]")
_GPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
MAX_NAMES = 5_000
"""One range stands for at most so many; a scenario is no large cluster."""


class Named(NamedTuple):
    """One of the names that a range stands for; its number counts from the first of them."""

    name: str
    number: int


def expanded(text: str) -> list[Named]:
    """Return the names that a text stands for; itself without a range. Raises Bad."""
    found = _RANGE.search(text)
    if found is None:
        return [Named(text, 0)]
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + MAX_NAMES:
        raise Bad(f"{found[0]} is no range of at most {MAX_NAMES:,} numbers, such as [0-3]", text)
    ends = text[: found.start()], text[found.end() :]
    return [Named(f"{ends[0]}{number}{ends[1]}", number - first) for number in range(first, last + 1)]


def names(value: object) -> tuple[str, ...]:
    """Read a list of names, each of which may be a range."""
    texts = values.list_of(values.text)(value)
    try:
        return tuple(named.name for text in texts for named in expanded(text))
    except Bad as error:
        raise Bad(str(error)) from None


def by_name(read_one: Reader[object]) -> Reader[tuple[tuple[str, object], ...]]:
    """Read a table whose keys are names or ranges of them."""

    def read(value: object) -> tuple[tuple[str, object], ...]:
        table = values.table_of(read_one)(value)
        return tuple((named.name, one) for key, one in table for named in expanded(key))

    return read


def seat(text: str) -> Seat:
    """Return a node and its GPUs from `node-0` or `node-0:0-3,6`. Raises Bad."""
    node_id, colon, gpus = text.partition(":")
    if not node_id or (colon and not _GPUS.fullmatch(gpus)):
        raise Bad(f"{text!r} is no node with GPUs: write node-0, or node-0:0-3,6")
    found: list[int] = []
    for part in gpus.split(",") if gpus else []:
        first, _, last = part.partition("-")
        if last and int(last) - int(first) > MAX_NAMES:
            raise Bad(f"{part} are too many GPUs for one node")
        found += range(int(first), int(last or first) + 1)
    return Seat(node_id=node_id, gpus=tuple(found))
