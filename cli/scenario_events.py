"""What happens in a scenario file, and what it expects."""

from collections.abc import Mapping
from typing import Any, get_args

from gangline.cli import values
from gangline.cli.policy_file import policy_of, queue
from gangline.cli.scenario_names import by_name, names
from gangline.cli.values import Bad, Reader, within
from gangline.events.types import MILLION
from gangline.simulator.scenario import COMMANDS, Deed, Expectation, Happening

_JOB: Mapping[str, Reader[Any]] = {"job": values.text}
_NODE: Mapping[str, Reader[Any]] = {"node": values.text}
_REASON: Mapping[str, Reader[Any]] = {"reason": values.text}

DEEDS: Mapping[Deed, tuple[Mapping[str, Reader[Any]], tuple[str, ...]]] = {
    "cancel": ({**_JOB, **_REASON}, ("job",)),
    "hold": ({**_JOB, **_REASON}, ("job",)),
    "release": (_JOB, ("job",)),
    "retry": (_JOB, ("job",)),
    "reprioritise": ({**_JOB, "priority": values.integer(-(2**31), 2**31 - 1)}, ("job", "priority")),
    "cordon": ({**_NODE, **_REASON}, ("node",)),
    "uncordon": (_NODE, ("node",)),
    "drain": ({**_NODE, **_REASON}, ("node",)),
    "check": (_NODE, ("node",)),
    "set_queue": ({"queue": values.table_of(lambda one: one)}, ("queue",)),
    "remove_queue": ({"queue": values.text}, ("queue",)),
    "activate_policy": ({"policy": lambda one: one, "queues": lambda one: one}, ()),
    "exit": ({**_JOB, "rank": values.integer(0), "code": values.integer(-255, 255)}, ("job",)),
    "checkpoint": (_JOB, ("job",)),
    "start_upload": (_JOB, ("job",)),
    "reject_checkpoint": ({**_JOB, **_REASON}, ("job",)),
    "slow": ({**_JOB, "rank": values.integer(0), "times": values.milli}, ("job", "rank", "times")),
    "idle": ({**_JOB, "for": values.duration_us(1)}, ("job", "for")),
    "storage": ({"pressed": values.flag, "used_ppm": values.integer(0, MILLION)}, ("pressed",)),
    "lose_node": ({**_NODE, "for": values.duration_us(1)}, ("node",)),
    "unhear_node": (_NODE, ("node",)),
    "hear_node": (_NODE, ("node",)),
    "silence_node": (_NODE, ("node",)),
    "break_node": ({**_NODE, **_REASON}, ("node",)),
    "break_gpu": ({**_NODE, "gpu": values.integer(0, 1023), **_REASON}, ("node", "gpu")),
}
"""What may be done, with the keys that say more, and those that it needs."""

_RENAMED = {"node": "node_id"}


def happenings(value: object) -> tuple[Happening, ...]:
    """Read [[events]]. Raises Bad."""
    if not isinstance(value, list):
        raise Bad("this is a list: write [[events]] above each")
    found = []
    for place, one in enumerate(value):
        with within(place):
            found.append(_happening(one, ("events", place)))
    return tuple(found)


def _happening(value: object, path: tuple[str | int, ...]) -> Happening:
    if not isinstance(value, dict) or "do" not in value:
        raise Bad(f"there is no `do`: name one of {', '.join(get_args(Deed))}")
    with within("do"):
        deed: Any = values.one_of(*get_args(Deed))(value["do"])
    keys, needed = DEEDS[deed]
    answer = {"refused": values.text} if deed in COMMANDS else {}
    read = {**keys, **answer, "at": values.duration_us()}
    found = values.fields({key: one for key, one in value.items() if key != "do"}, read, needed=("at", *needed))
    fields = {_RENAMED.get(key, key): one for key, one in found.items()}
    at_us = fields.pop("at")
    if deed == "set_queue":
        if len(fields["queue"]) != 1:
            raise Bad('this is one queue: write queue = { "org/team" = { guarantee = 8 } }', "queue")
        fields["queue"] = queue(*fields["queue"][0])
    elif deed == "remove_queue":
        fields["queue_path"] = fields.pop("queue")
    elif deed == "activate_policy":
        fields["policy"] = policy_of(fields.pop("policy", {}), fields.pop("queues", None))
    elif deed == "slow":
        fields["slowness_ppm"] = fields.pop("times") * 1_000
    elif deed in ("idle", "lose_node") and "for" in fields:
        fields["idle_us" if deed == "idle" else "down_us"] = fields.pop("for")
    return Happening(at_us=at_us, deed=deed, path=path, **fields)


_TEXTS: Reader[Any] = by_name(values.list_of(values.text))
_COUNTS: Reader[Any] = by_name(values.integer(0))

_EXPECT: Mapping[str, Reader[Any]] = {
    "at": values.duration_us(),
    "runs": names,
    "waits": names,
    "stops": names,
    "ended": by_name(values.text),
    "where": _TEXTS,
    "victims": names,
    "reasons": by_name(values.text),
    "preemptions": _COUNTS,
    "attempts": _COUNTS,
    "why": _TEXTS,
    "causes": by_name(values.text),
    "order": names,
    "held": _TEXTS,
    "reserved": _TEXTS,
    "quarantined": names,
    "resumes": by_name(values.duration_us()),
    "warned": names,
}


def expectations(value: object, until_us: int) -> tuple[Expectation, ...]:
    """Read [[expect]]; what names no time is expected at the end. Raises Bad."""
    if not isinstance(value, list):
        raise Bad("this is a list: write [[expect]] above each")
    found = []
    for place, one in enumerate(value):
        with within(place):
            fields = values.fields(one, _EXPECT)
        at_us = fields.pop("at", until_us)
        if at_us > until_us:
            raise Bad("this is after the end of the scenario: let `until` be later", place, "at")
        if not fields:
            raise Bad(f"nothing is expected: name some of {', '.join(_EXPECT)}", place)
        found.append(Expectation(at_us=at_us, path=("expect", place), **fields))
    return tuple(found)
