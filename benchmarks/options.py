"""What a benchmark takes on the command line besides --json and --quick, and where it finds a trace."""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TRACES = "GANGLINE_TRACES"
"""The environment variable that names the folder of traces, used where no option names a file."""
MAX_SEEDS = 1_000


class Option(NamedTuple):
    """An option of one benchmark, given to its `figures` by `name`; `_` is `-` on the command line."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str


def trace_file(given: Path | None, name: str) -> Path | None:
    """Return the file an option names, else that of this name in the folder that GANGLINE_TRACES names, else None."""
    folder = os.environ.get(TRACES)
    return given or (Path(folder) / name if folder else None)


def seeds(text: str) -> tuple[int, ...]:
    """Read `42-51`, `1,5,9` or one number. Raises ArgumentTypeError for anything else."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        if not match:
            raise argparse.ArgumentTypeError(f"{part!r} is no seed: write 42-51, or 1,5,9, or one number")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MAX_SEEDS:
            raise argparse.ArgumentTypeError(f"{part!r} holds no seed, or more than {MAX_SEEDS}: write 42-51")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))
