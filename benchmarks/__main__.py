"""The command `python -m benchmarks`: list, run, report."""

import argparse
import importlib
import sys
from collections.abc import Iterator

from benchmarks import BENCHMARKS
from benchmarks.figures import Figure
from benchmarks.machine import this_commit, this_machine
from benchmarks.report import as_json, as_table


def listed() -> str:
    """Return a line for each benchmark: its name, and the first line of its module."""
    docs = {name: importlib.import_module(module).__doc__ or "" for name, module in BENCHMARKS.items()}
    return "\n".join(f"{name:10} {text.partition(chr(10))[0]}" for name, text in sorted(docs.items()))


def measured(names: list[str], *, quick: bool) -> Iterator[Figure]:
    """Run the benchmarks one after the other, telling on stderr which one runs."""
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr)
        yield from importlib.import_module(BENCHMARKS[name]).figures(quick=quick)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code: 0 even where a goal is not met, 2 for usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure gangline's figures. Without a name, list the benchmarks; `all` runs every one. "
        "A goal that is not met is shown, and does not change the exit code.",
        epilog="example: python -m benchmarks log --quick",
    )
    parser.add_argument("name", nargs="?", help=f"one of: {', '.join(sorted(BENCHMARKS))}, all")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--quick", action="store_true", help="a rough answer in less than 50 seconds each")
    wanted = parser.parse_args(arguments)
    if wanted.name is None:
        print(listed())
        return 0
    if wanted.name not in {*BENCHMARKS, "all"}:
        print(f"no benchmark '{wanted.name}'; there are: {', '.join(sorted(BENCHMARKS))}, all", file=sys.stderr)
        return 2
    names = sorted(BENCHMARKS) if wanted.name == "all" else [wanted.name]
    machine, commit = this_machine(), this_commit()
    figures = list(measured(names, quick=wanted.quick))
    if wanted.json:
        print(as_json(machine, commit, figures))
    else:
        as_table(machine, commit, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
