"""Reads scenarios: one TOML file each, of a cluster, a policy, jobs, what happens, and what is expected."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gangline.cli import values
from gangline.cli.policy_file import policy_of
from gangline.cli.scenario_events import expectations, happenings
from gangline.cli.scenario_jobs import jobs, nodes
from gangline.cli.toml_file import TomlFile
from gangline.cli.values import Bad, within
from gangline.simulator.scenario import Expectation, Scenario, ScenarioJob
from gangline.simulator.work import SECOND_US

T = TypeVar("T")
AFTER_US = 60 * SECOND_US
"""How long a scenario goes on after the last that is said of it, if it does not say."""

MAX_NAMED = 12
"""Jobs that a message names."""

_OF_JOBS = (
    "runs",
    "waits",
    "stops",
    "ended",
    "where",
    "victims",
    "reasons",
    "preemptions",
    "attempts",
    "why",
    "causes",
    "order",
    "held",
    "reserved",
    "resumes",
    "warned",
)
"""What is expected of jobs by their names."""

_KEYS = ("until", "policy", "queues", "nodes", "jobs", "events", "expect")


def read_scenario(path: Path) -> tuple[TomlFile, Scenario]:
    """Return a scenario, and its file for what is to be said about it. Raises NotFound, UsageError with the line."""
    file = TomlFile(path, "a scenario")
    return file, file.read(scenario)


def scenario(value: object) -> Scenario:
    """Read a whole scenario. Raises Bad."""
    found = values.fields(value, dict.fromkeys(_KEYS, lambda one: one), needed=("nodes",))
    all_nodes = _under("nodes", nodes, found["nodes"])
    all_jobs = _under("jobs", jobs, found.get("jobs", {}))
    all_happenings = _under("events", happenings, found.get("events", []))
    times = [job.submit_us for job in all_jobs] + [one.at_us for one in all_happenings]
    times += [one.joins_us or 0 for one in all_nodes] + list(_times(found.get("expect", [])))
    if "until" in found:
        until_us = _under("until", values.duration_us(1), found["until"])
    else:
        until_us = max([0, *times]) + AFTER_US
    expected = _under("expect", lambda one: expectations(one, until_us), found.get("expect", []))
    for one in expected:
        _check_names(one, all_jobs)
    return Scenario(
        policy=policy_of(found.get("policy", {}), found.get("queues")),
        nodes=all_nodes,
        jobs=all_jobs,
        happenings=all_happenings,
        expectations=expected,
        until_us=until_us,
    )


def _check_names(expected: Expectation, all_jobs: Sequence[ScenarioJob]) -> None:
    """Raise Bad if something is expected of a job that the scenario does not have."""
    known = {job.name: job.spec.array or 0 for job in all_jobs}
    known |= {f"{name}.{index}": 0 for name, size in list(known.items()) for index in range(size)}
    for key in _OF_JOBS:
        for entry in getattr(expected, key) or ():
            name = entry if isinstance(entry, str) else entry[0]
            if name not in known:
                there = ", ".join(list(known)[:MAX_NAMED]) or "there is none"
                raise Bad(f"there is no job {name!r}: the jobs are {there}", *expected.path, key)


def _times(expect: Any) -> Iterator[int]:  # noqa: ANN401 - whatever the parser gave
    """Yield the times of expectations that are readable; what is wrong with the others is told later."""
    for one in expect if isinstance(expect, list) else []:
        if isinstance(one, dict) and isinstance(one.get("at"), str):
            try:
                yield values.duration_us()(one["at"])
            except Bad:
                continue


def _under(key: str, read: Callable[[Any], T], value: object) -> T:
    with within(key):
        return read(value)
