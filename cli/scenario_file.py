"""Reads scenarios: one TOML file each, of a cluster, a policy, jobs, what happens, and what is expected."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    _check_after(all_jobs)
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


def _check_after(all_jobs: Sequence[ScenarioJob]) -> None:
    """Raise Bad if a job waits for one of which nobody knows the id yet, and is not expected to be rejected for it."""
    order = sorted(all_jobs, key=lambda job: job.submit_us)
    places = {job.name: place for place, job in enumerate(order)}
    for job in order:
        for other in job.after if job.rejected is None else ():
            later = places.get(other, places.get(other.partition(".")[0], -1))
            if later < places[job.name]:
                continue
            circle = _way_back(order[later], job.name, order, places)
            if circle:
                said = f"{' waits for '.join([job.name, *circle])}, a circle in which none could start: break it"
            else:
                said = f"job {other!r} is submitted after this one: submit it before, or write it above"
            raise Bad(said, *job.path, "after")


def _way_back(
    first: ScenarioJob, name: str, order: Sequence[ScenarioJob], places: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the jobs by which one waits for a job of that name, both included; none if it does not."""
    ways: dict[str, tuple[str, ...]] = {first.name: (first.name,)}
    waiting = [first]
    while waiting:
        job = waiting.pop()
        if job.name == name:
            return ways[name]
        for other in job.after:
            base = other if other in places else other.partition(".")[0]
            if base in places and base not in ways:
                ways[base] = (*ways[job.name], base)
                waiting.append(order[places[base]])
    return ()


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
