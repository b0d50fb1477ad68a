"""The benchmarks of gangline: named figures, each held against its goal; `python -m benchmarks` lists them.

A benchmark is a module with a function `figures(*, quick: bool) -> Iterator[Figure]`, entered in `BENCHMARKS`. It
measures a ratio by taking turns in one run, so that a slow minute of the machine slows both sides. If it has a tuple
`OPTIONS` of `benchmarks.options.Option`, they are added to the command line, and given to `figures` by their names.
"""

from types import MappingProxyType

__all__ = ["BENCHMARKS"]

NAMES = ("launch", "launches", "log", "mix", "packing", "queueing", "tick")
BENCHMARKS = MappingProxyType({name: f"benchmarks.{name}" for name in NAMES})
"""Every benchmark's name, and the module that measures it."""
