"""The nodes and jobs of a scenario file: jobs as in a spec, and where they ran before the beginning."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from gangline.cli import units, values
from gangline.cli.scenario_names import expanded, names, seat
from gangline.cli.spec import KEYS, RESOURCES, build
from gangline.cli.values import Bad, Reader, within
from gangline.events.types import JobSpec, PreemptionReason
from gangline.simulator.scenario import LONG_US, PastAttempt, ScenarioJob, ScenarioNode
from gangline.simulator.work import SECOND_US, VirtualNode

NUMBER = "{}"
"""In the place of a job of a range: its number among them."""

_NODE: Mapping[str, Reader[Any]] = {
    "gpus": values.integer(0, 1024),
    "gpu_type": values.text,
    "pod": values.text,
    "per_pod": values.integer(1),
    "cpus": values.positive_milli,
    "memory": values.size_bytes(1),
    "cordoned": values.flag,
    "quarantined": values.duration_us(1),
    "joins": values.duration_us(),
    "cannot_launch": values.text,
    "sick": values.text,
}

_TIMED: Mapping[str, Reader[Any]] = {
    "at": values.duration_us(),
    "ago": values.duration_us(1),
    "works": values.duration_us(1),
    "saves_in": values.duration_us(),
    "saves_every": values.duration_us(1),
    "restarts_in": values.duration_us(),
    "running": lambda one: one,
    "earlier": lambda one: one,
    "gave_way": values.integer(1, 1_000),
    "gave_way_for": values.one_of(*get_args(PreemptionReason)),
    "rejected": values.text,
}
"""What a scenario says of a job beside its spec."""

_ATTEMPT: Mapping[str, Reader[Any]] = {
    "on": values.list_of(values.text, least=1),
    "since": values.duration_us(1),
    "until": values.duration_us(),
    "saved": values.list_of(values.duration_us()),
    "for": values.one_of(*get_args(PreemptionReason)),
}


def nodes(value: object) -> tuple[ScenarioNode, ...]:
    """Read [nodes]. Raises Bad."""
    found = []
    for key, table in values.table_of(lambda one: values.fields(one, _NODE))(value):
        for name, number in expanded(key):
            pod = f"pod-{number // table['per_pod']}" if "per_pod" in table else table.get("pod", "pod-0")
            node = VirtualNode(
                node_id=name,
                pod=pod,
                gpus=table.get("gpus", 8),
                gpu_type=table.get("gpu_type", "H100"),
                cpu_milli=table.get("cpus", 128 * units.MILLI),
                memory_bytes=table.get("memory", 2 << 40),
            )
            found.append(
                ScenarioNode(
                    node=node,
                    cordoned=table.get("cordoned", False),
                    quarantined_until_us=table.get("quarantined"),
                    joins_us=table.get("joins"),
                    cannot_launch=table.get("cannot_launch", ""),
                    sick=table.get("sick", ""),
                    path=("nodes", key),
                )
            )
    if not found:
        raise Bad("there is no node: write [nodes.node-0]")
    return tuple(found)


def jobs(value: object) -> tuple[ScenarioJob, ...]:
    """Read [jobs]. Raises Bad."""
    found: dict[str, ScenarioJob] = {}
    for key, table in values.table_of(lambda one: one)(value):
        for name, number in expanded(key):
            if name in found:
                raise Bad(f"there is another job {name}: call it otherwise", key)
            with within(key):
                found[name] = _job(name, number, key, table)
    return tuple(found.values())


def _job(name: str, number: int, key: str, table: object) -> ScenarioJob:
    if not isinstance(table, dict):
        raise Bad(f"this is a table, not {values.kind(table)}")
    for one in table:
        if one not in _TIMED and one not in KEYS and one not in RESOURCES:
            raise Bad(values.unknown(one, {**_TIMED, **KEYS, **RESOURCES}), one)
    timed = values.fields({one: what for one, what in table.items() if one in _TIMED}, _TIMED)
    after = names(table["after"]) if "after" in table else ()
    spec = _spec(name, {one: what for one, what in table.items() if one not in _TIMED and one != "after"})
    past = _past(timed, number, ("jobs", key))
    if "at" in timed and (past or "ago" in timed):
        raise Bad(
            "this is after the beginning, but the job is submitted before it: leave the one or the other out", "at"
        )
    first_us = min([attempt.since_us for attempt in past], default=0)
    submit_us = timed.get("at", -timed["ago"] if "ago" in timed else first_us)
    if submit_us > first_us and past:
        raise Bad("by then the job ran already: submit it as long ago at least", "ago")
    return ScenarioJob(
        name=name,
        spec=spec,
        submit_us=submit_us,
        after=after,
        work_us=timed.get("works", LONG_US),
        save_us=timed.get("saves_in", 0),
        save_interval_us=timed.get("saves_every"),
        restart_us=timed.get("restarts_in", 0),
        past=past,
        rejected=timed.get("rejected"),
        path=("jobs", key),
    )


def _spec(name: str, table: dict[str, Any]) -> JobSpec:
    resources = {one: what for one, what in table.items() if one in RESOURCES}
    keys = {one: what for one, what in table.items() if one not in RESOURCES}

    def bad(path: tuple[str | int, ...], message: str) -> Exception:
        return Bad(message, *(path[1:] if path[:1] == ("resources",) else path))

    whole = {"command": ["train"], "name": name, **keys, "resources": {"gpus": 1, **resources}}
    return build(whole, bad, folder=Path("/"), name=name).spec


def _past(timed: Mapping[str, Any], number: int, path: tuple[str | int, ...]) -> tuple[PastAttempt, ...]:
    found = []
    earlier = timed.get("earlier", [])
    if not isinstance(earlier, list):
        raise Bad(f"this is a list of tables, not {values.kind(earlier)}", "earlier")
    for place, one in enumerate(earlier):
        found.append(_attempt(one, number, path, ("earlier", place), needed=("on", "since", "until")))
    if "running" in timed:
        running = _attempt(timed["running"], number, path, ("running",), needed=("on", "since"))
        if running.until_us is not None:
            raise Bad("what runs has no end: leave it out, or say it of `earlier`", "running", "until")
        found += _gave_way(timed, running)
        found.append(running)
    elif "gave_way" in timed:
        raise Bad("this is told of running jobs: tell where it ran with `earlier`", "gave_way")
    return tuple(found)


def _attempt(
    value: object, number: int, path: tuple[str | int, ...], key: tuple[str | int, ...], *, needed: tuple[str, ...]
) -> PastAttempt:
    with within(*key):
        found = values.fields(value, _ATTEMPT, needed=needed)
        until_us = found.get("until", 0)
        if found["since"] < until_us:
            raise Bad("it ends before it begins: both are counted backwards from the beginning", "until")
        for saved_us in found.get("saved", ()):
            if not until_us <= saved_us <= found["since"]:
                raise Bad("it did not run then: name times from `since` on", "saved")
        seats = tuple(seat(text.replace(NUMBER, str(number))) for text in found["on"])
    return PastAttempt(
        seats=seats,
        since_us=-found["since"],
        until_us=-found["until"] if "until" in found else None,
        reason=found.get("for", "service"),
        saved_us=tuple(sorted(-saved_us for saved_us in found.get("saved", ()))),
        path=(*path, *key),
    )


def _gave_way(timed: Mapping[str, Any], running: PastAttempt) -> list[PastAttempt]:
    """Return as many short attempts as the job gave way, just before it began to run where it is."""
    cycle_us = 2 * SECOND_US + timed.get("saves_in", 0)
    count = timed.get("gave_way", 0)
    begins = [running.since_us - cycle_us * (count - number) for number in range(count)]
    return [
        PastAttempt(
            seats=running.seats,
            since_us=since_us,
            until_us=since_us + SECOND_US,
            reason=timed.get("gave_way_for", "service"),
            path=running.path,
        )
        for since_us in begins
    ]
