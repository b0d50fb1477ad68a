"""Whether a policy holds together; what does not is named with its values and the way out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gangline.events.amounts import size_shown, time_shown
from gangline.events.policy import RULES, Policy
from gangline.events.types import MILLION
from gangline.scheduler import quota
from gangline.scheduler.quota import Fault
from gangline.scheduler.rules.admission import MAX_GRACE_US, MAX_RETRIES
from gangline.scheduler.rules.refusals import listed, shown

MAX_PORT = 65_535
MIN_PORT = 1_024
MAX_CHECKPOINTS_KEPT = 100
MAX_ARRAY = 10_000
"""Rounds name every job of an array that a command stops, and must stay within a record."""
MAX_AFTER = 1_000
MAX_PATH_CHARACTERS = 200
MAX_QUEUES = 10_000
MAX_LEVELS = 64
MAX_TIME_US = 1 << 60
"""Sums of a few times are still numbers of 64 bits."""
MAX_COUNT = (1 << 31) - 1


class _Bounds(NamedTuple):
    least: int
    most: int


_ANY_TIME = _Bounds(0, MAX_TIME_US)
_TIME = _Bounds(1, MAX_TIME_US)
_ANY_COUNT = _Bounds(0, MAX_COUNT)
_PPM = _Bounds(0, MILLION)

BOUNDS: Mapping[str, _Bounds] = MappingProxyType(
    {
        "retries": _Bounds(0, MAX_RETRIES),
        "grace_us": _Bounds(0, MAX_GRACE_US),
        "answers_kept_us": _TIME,
        "ahead_limit_us": _TIME,
        "port_first": _Bounds(MIN_PORT, MAX_PORT),
        "port_count": _Bounds(1, MAX_PORT),
        "checkpoints_kept": _Bounds(1, MAX_CHECKPOINTS_KEPT),
        "half_life_us": _TIME,
        "usage_step_us": _TIME,
        "worth_refresh_arrivals": _Bounds(1, MAX_COUNT),
        "worth_kept_ppm": _PPM,
        "reservations_max": _ANY_COUNT,
        "reservation_interval_us": _TIME,
        "reservation_after_us": _ANY_TIME,
        "reservation_hard_us": _ANY_TIME,
        "room_interval_us": _TIME,
        "room_searches": _ANY_COUNT,
        "preemption_grace_us": _Bounds(0, MAX_GRACE_US),
        "min_runtime_us": _ANY_TIME,
        "gang_min_runtime_us": _ANY_TIME,
        "shield_step_us": _ANY_TIME,
        "preemptions_max": _ANY_COUNT,
        "gang_preemptions_max": _ANY_COUNT,
        "moves_max": _ANY_COUNT,
        "protection_from_us": _ANY_TIME,
        "protection_until_us": _ANY_TIME,
        "reclaim_after_us": _ANY_TIME,
        "reclaim_min_runtime_us": _ANY_TIME,
        "reclaim_interval_us": _TIME,
        "first_start_after_us": _ANY_TIME,
        "first_start_min_runtime_us": _ANY_TIME,
        "small_victim_gpus": _ANY_COUNT,
        "consolidation_jobs": _ANY_COUNT,
        "consolidation_gpus": _ANY_COUNT,
        "fill_nodes": _ANY_COUNT,
        "fill_victims": _ANY_COUNT,
        "fill_gain_gpus": _ANY_COUNT,
        "batch_after_us": _ANY_TIME,
        "batch_gpus": _ANY_COUNT,
        "spare_nodes": _ANY_COUNT,
        "spare_ppm": _Bounds(0, MILLION - 1),
        "recovery_hold_us": _ANY_TIME,
        "upload_deadline_us": _ANY_TIME,
        "quarantine_faults": _ANY_COUNT,
        "quarantine_window_us": _TIME,
        "quarantine_us": _TIME,
        "quarantined_max_ppm": _PPM,
        "excused_retries": _ANY_COUNT,
        "immediate_us": _ANY_TIME,
        "immediate_max": _ANY_COUNT,
        "elastic_interval_us": _TIME,
        "elastic_gain_ppm": _ANY_COUNT,
        "idle_timeout_us": _TIME,
        "warning_us": _ANY_TIME,
        "straggler_reports": _Bounds(1, MAX_COUNT),
        "straggler_replacements": _ANY_COUNT,
        "data_heavy_bytes": _Bounds(0, MAX_TIME_US),
        "array_max": _Bounds(1, MAX_ARRAY),
        "after_max": _Bounds(0, MAX_AFTER),
    }
)
"""Of every field that is a number."""

NOT_ABOVE = (
    ("usage_step_us", "half_life_us", "usage would decay in steps longer than its half-life"),
    ("protection_from_us", "protection_until_us", "protection would end before it begins"),
    ("reservation_after_us", "reservation_hard_us", "nodes would be shut for a gang before they are reserved for it"),
)
"""Pairs of which the first must not be above the second."""


def check_policy(policy: Policy) -> str | None:
    """Return why a policy does not hold together, or None."""
    fault = fault_of(policy)
    return None if fault is None else fault.message


def fault_of(policy: Policy) -> Fault | None:
    """Return what does not hold together in a policy, and where in its file it stands; None if nothing."""
    return _check_paths(policy) or _check_numbers(policy) or _check_rules(policy) or quota.fault_of(policy.queues)


def _of(name: str, message: str) -> Fault:
    """Return a fault of a field, by its key in a file."""
    return Fault(("policy", _key(name)), message)


def _key(name: str) -> str:
    """Return what a field is called in a file, where its value has a unit."""
    return name.removesuffix("_us").removesuffix("_bytes")


def _shown(name: str, value: int) -> str:
    """Return the value of a field as a file has it."""
    if name.endswith("_us"):
        return time_shown(value)
    return size_shown(value) if name.endswith("_bytes") else str(value)


def _check_paths(policy: Policy) -> Fault | None:
    paths = sorted(queue.path for queue in policy.queues)
    if not paths:
        return Fault(("queues",), "a policy has at least one queue: add one")
    if len(paths) > MAX_QUEUES:
        return Fault(("queues",), f"there are {len(paths):,} queues, but at most {MAX_QUEUES:,} can be: remove some")
    for path, after in zip(paths, [*paths[1:], None], strict=True):
        if not path or any(not part for part in path.split("/")):
            return Fault(("queues", path), f"queue {shown(path)!r} is not a path like org/team/project: rename it")
        if len(path) > MAX_PATH_CHARACTERS:
            message = f"queue {shown(path)!r} has {len(path)} characters, but at most {MAX_PATH_CHARACTERS}: shorten it"
            return Fault(("queues", path), message)
        if path == after:
            return Fault(("queues", path), f"queue {shown(path)!r} appears more than once: remove one")
    return None


def _check_numbers(policy: Policy) -> Fault | None:
    if not 0 < policy.ahead_limit_us < policy.answers_kept_us:
        # Else a command from the future could outlive its answer, and be answered anew.
        return _of(
            "ahead_limit_us",
            f"ahead_limit is {time_shown(policy.ahead_limit_us)} and answers_kept "
            f"{time_shown(policy.answers_kept_us)}: name times above 0, the second the longer one",
        )
    if policy.port_count <= 0 or policy.port_first < MIN_PORT or policy.port_first + policy.port_count > MAX_PORT + 1:
        return _of(
            "port_first",
            f"{policy.port_count} ports from {policy.port_first} on are not within {MIN_PORT} to {MAX_PORT}: "
            "name another port_first or port_count",
        )
    for name, bounds in sorted(BOUNDS.items()):
        value: int = getattr(policy, name)
        if value < bounds.least:
            least = "a time above 0" if bounds is _TIME else f"{_shown(name, bounds.least)} or more"
            return _of(name, f"{_key(name)} is {_shown(name, value)}: name {least}")
        if value > bounds.most:
            return _of(name, f"{_key(name)} is {_shown(name, value)}: name at most {_shown(name, bounds.most)}")
    for low, high, why in NOT_ABOVE:
        first, second = getattr(policy, low), getattr(policy, high)
        if first > second:
            both = f"{_key(low)} is {_shown(low, first)}, above {_key(high)}, which is {_shown(high, second)}"
            return _of(low, f"{both}, so that {why}: lower the one or raise the other")
    return _check_levels("levels_us", policy.levels_us) or _check_levels("gang_levels_us", policy.gang_levels_us)


def _check_levels(name: str, levels: tuple[int, ...]) -> Fault | None:
    if len(levels) > MAX_LEVELS:
        return _of(name, f"{_key(name)} has {len(levels)} levels: name at most {MAX_LEVELS}")
    before = 0
    for level in levels:
        if not before < level <= MAX_TIME_US:
            after = f" after {time_shown(before)}" if before else ""
            message = (
                f"{_key(name)} has {time_shown(level)}{after}: name times above 0, each longer than the one before"
            )
            return _of(name, message)
        before = level
    return None


def _check_rules(policy: Policy) -> Fault | None:
    for rule in policy.rules:
        if rule not in RULES:
            return _of("rules", f"rules names {shown(rule)!r}, which is no rule: the rules are {listed(RULES)}")
        if policy.rules.count(rule) > 1:
            return _of("rules", f"rules names {rule!r} {policy.rules.count(rule)} times: name it once")
    return None
