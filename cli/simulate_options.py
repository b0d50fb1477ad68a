"""Which options of `gangline simulate` go with which workload: one that would do nothing is a mistake in usage."""

from collections.abc import Iterable
from typing import Literal

from gangline.schemas.errors import UsageError

Workload = Literal["mix", "philly", "openb", "log", "scenario"]

_WORDS: dict[Workload, str] = {
    "mix": "--mix",
    "philly": "a Philly trace",
    "openb": "an openb trace",
    "log": "a log of gangline's",
    "scenario": "--scenario",
}
_OF_TRACES: tuple[Workload, ...] = ("philly", "openb")
_ALL_BUT_SCENARIOS: tuple[Workload, ...] = ("mix", "philly", "openb", "log")

GOES_WITH: dict[str, tuple[Workload, ...]] = {
    "seed": ("mix",),
    "load": ("mix",),
    "days": _ALL_BUT_SCENARIOS,
    "nodes": ("philly",),
    "node_gpus": ("philly",),
    "pods": ("philly",),
    "node_list": ("openb",),
    "divide": _OF_TRACES,
    "pooled": ("philly",),
    "policy": _ALL_BUT_SCENARIOS,
    "faults": _ALL_BUT_SCENARIOS,
    "report": _ALL_BUT_SCENARIOS,
    "keep_log": _ALL_BUT_SCENARIOS,
    "check": ("scenario",),
}
"""By option, in the order of the help, what it says something about."""

_INSTEAD: dict[tuple[str, Workload], str] = {
    **{(name, "openb"): "its nodes are those of --node-list" for name in ("nodes", "node_gpus", "pods")},
    **{(name, "log"): "its nodes are those of the log" for name in ("nodes", "node_gpus", "pods", "node_list")},
    **{(name, "mix"): "it has 512 nodes of 8 GPUs" for name in ("nodes", "node_gpus", "pods", "node_list")},
    ("node_list", "philly"): "give --nodes, --node-gpus and --pods",
    ("pooled", "openb"): "all its tasks are in one queue as it is",
    ("policy", "scenario"): "write [policy] into its file",
    ("faults", "scenario"): "write [[events]] into its file",
}
"""What to do, or what is so, where an option says nothing."""


def refuse_unused(given: Iterable[str], workload: Workload) -> None:
    """Raise UsageError if an option that was given (named as in GOES_WITH) would do nothing to a workload."""
    for name, workloads in GOES_WITH.items():
        if name in given and workload not in workloads:
            option = "--" + name.replace("_", "-")
            with_words = [_WORDS[one] for one in workloads]
            listed = " or ".join([", ".join(with_words[:-1]), with_words[-1]] if with_words[1:] else with_words)
            instead = _INSTEAD.get((name, workload), "leave it out")
            raise UsageError(f"{option} goes with {listed}, not with {_WORDS[workload]}: {instead}")
