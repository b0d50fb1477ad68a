"""How figures are shown: a table for people, one JSON object for programs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure
from benchmarks.machine import Machine


def number(value: float | None) -> str:
    """Return a number as people read it: three significant digits below 100, whole with commas above."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def as_json(machine: Machine, commit: str, figures: Sequence[Figure]) -> str:
    """Return the whole report as one JSON object."""
    rows: list[dict[str, Any]] = [{**msgspec.to_builtins(figure), "met": figure.met} for figure in figures]
    report = {"machine": msgspec.to_builtins(machine), "commit": commit, "figures": rows}
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def as_table(machine: Machine, commit: str, figures: Sequence[Figure]) -> None:
    """Print the report on stdout, as wide as it needs where that is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    table = Table("figure", "value", "unit", "reference", "goal", "met", box=None, pad_edge=False)
    for figure in figures:
        met = {True: "yes", False: "NO", None: "not measured" if figure.value is None else "-"}[figure.met]
        goal = "-" if figure.goal is None else f"{'>=' if figure.better == 'higher' else '<='} {number(figure.goal)}"
        table.add_row(figure.name, number(figure.value), figure.unit, figure.reference, goal, met)
    console.print(table)
    console.print(
        f"\n{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.1f} GiB, "
        f"Linux {machine.kernel}, Python {machine.python}; commit {commit}",
        highlight=False,
    )
