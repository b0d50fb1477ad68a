"""The command `python -m benchmarks`: list, run, report."""

import argparse
import importlib
import sys
from collections.abc import Iterator

from benchmarks import BENCHMARKS
from benchmarks.figures import Figure
from benchmarks.machine import this_commit, this_machine
from benchmarks.options import Option
from benchmarks.report import as_json, as_table
from gangline.schemas.errors import GanglineError


def listed() -> str:
    """Return a line for each benchmark: its name, and the first line of its module."""
    docs = {name: importlib.import_module(module).__doc__ or "" for name, module in BENCHMARKS.items()}
    return "\n".join(f"{name:10} {text.partition(chr(10))[0]}" for name, text in sorted(docs.items()))


def options_of(name: str) -> tuple[Option, ...]:
    """Return the options that are this benchmark's own."""
    options: tuple[Option, ...] = getattr(importlib.import_module(BENCHMARKS[name]), "OPTIONS", ())
    return options


def measured(names: list[str], given: argparse.Namespace) -> Iterator[Figure]:
    """Run the benchmarks one after the other, telling on stderr which one runs; what is not given is the default."""
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr)
        own = {option.name: getattr(given, option.name, option.default) for option in options_of(name)}
        yield from importlib.import_module(BENCHMARKS[name]).figures(quick=given.quick, **own)


def parser_for(name: str | None) -> argparse.ArgumentParser:
    """Return the parser of the command line for this benchmark, with the options that are its own."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure gangline's figures. Without a name, list the benchmarks; `all` runs every one. "
        "A goal that is not met is shown, and does not change the exit code.",
        epilog="example: python -m benchmarks log --quick",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", help=f"one of: {', '.join(sorted(BENCHMARKS))}, all")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--quick", action="store_true", help="a rough answer in less than 50 seconds each")
    own = options_of(name) if name is not None and name in BENCHMARKS else ()
    group = parser.add_argument_group(f"options of {name}") if own else parser
    for option in own:
        flag = "--" + option.name.replace("_", "-")
        group.add_argument(flag, dest=option.name, type=option.parse, default=option.default, help=option.help)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code.

    It is 0 even where a goal is not met, 2 for usage, else that of the error: 1 for what cannot be read.
    """
    words = sys.argv[1:] if arguments is None else arguments
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name not in {*BENCHMARKS, "all"}:
        print(f"no benchmark '{name}'; there are: {', '.join(sorted(BENCHMARKS))}, all", file=sys.stderr)
        return 2
    wanted = parser_for(name).parse_args(words)
    if wanted.name is None:
        print(listed())
        return 0
    names = sorted(BENCHMARKS) if wanted.name == "all" else [wanted.name]
    machine, commit = this_machine(), this_commit()
    try:
        figures = list(measured(names, wanted))
    except GanglineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if wanted.json:
        print(as_json(machine, commit, figures))
    else:
        as_table(machine, commit, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
