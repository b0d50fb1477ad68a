"""Policies and trees of queues for small worlds: rules on and off, times of seconds where real ones are hours."""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events.policy import RULES, Policy, Queue, Quota
from gangline.events.types import SECOND_US
from gangline.simulator.fuzz.dice import Dice, keyed


def queues(dice: Dice, types: Sequence[str], gpus: int) -> tuple[Queue, ...]:
    """Return a tree of one to six queues whose guarantees add up to at most the cluster."""
    if dice.percent(25):
        return (Queue(path="default"),)
    found: list[Queue] = []
    left = gpus
    for number in range(dice.between(1, 3)):
        path = f"team-{number}"
        share = dice.below(left + 1)
        quotas = _quotas(dice, types, share, left)
        left -= share
        found.append(Queue(path=path, quotas=quotas))
        if dice.percent(40):
            rest = min((quota.guarantee_milli or 0 for quota in quotas), default=0) // 1000
            for child in range(dice.between(1, 2)):
                part = dice.below(rest + 1)
                rest -= part
                found.append(Queue(path=f"{path}/project-{child}", quotas=_quotas(dice, types, part, rest + part)))
    return tuple(found)


def _quotas(dice: Dice, types: Sequence[str], gpus: int, most: int) -> tuple[Quota, ...]:
    if dice.percent(20):
        return ()
    named = dice.pick(("", *types)) if dice.percent(30) else ""
    ceiling = None if dice.percent(60) else 1000 * dice.between(gpus, max(gpus, most) + 1)
    guarantee = None if dice.percent(25) else 1000 * gpus + (0 if dice.percent(80) else 500 * (gpus < most))
    if ceiling is not None and guarantee is not None:
        ceiling = max(ceiling, guarantee)
    return (Quota(gpu_type=named, guarantee_milli=guarantee, ceiling_milli=ceiling, weight=dice.pick([1, 1, 2, 5])),)


def shared_tree(dice: Dice, gpus: int) -> tuple[Queue, ...]:
    """Return two or three teams that are guaranteed all GPUs together, and have no ceilings: they borrow a lot."""
    found: list[Queue] = []
    left = gpus
    count = dice.between(2, 3)
    for number in range(count):
        share = left if number == count - 1 else min(left, gpus // count + dice.below(2))
        left -= share
        found.append(Queue(path=f"team-{number}", quotas=(Quota(guarantee_milli=1000 * share),)))
        if dice.percent(30):
            found += [Queue(path=f"team-{number}/project-{child}") for child in range(dice.between(1, 2))]
    return tuple(found)


def soon(dice: Dice, chosen: Policy) -> Policy:
    """Return the policy with room made soon and without much shield, so that many give way."""
    return replace(
        chosen,
        rules=RULES,
        order="fair",
        head_blocks=False,
        port_count=100,
        room_searches=16,
        room_interval_us=_seconds(dice, 2, 5),
        min_runtime_us=_seconds(dice, 0, 2),
        gang_min_runtime_us=_seconds(dice, 0, 2),
        shield_step_us=_seconds(dice, 0, 0, 5),
        preemptions_max=dice.between(2, 8),
        gang_preemptions_max=dice.between(2, 8),
        reclaim_after_us=_seconds(dice, 0, 2),
        reclaim_min_runtime_us=_seconds(dice, 0, 2),
        small_victim_gpus=8,
        consolidation_jobs=dice.between(1, 4),
        moves_max=dice.between(1, 4),
    )


def leaves(tree: Sequence[Queue]) -> list[str]:
    """Return the queues without others below."""
    paths = [queue.path for queue in tree]
    return [path for path in paths if not any(other.startswith(f"{path}/") for other in paths)]


def policy(dice: Dice, tree: tuple[Queue, ...]) -> Policy:
    """Return a policy under which much happens within a minute."""
    off = dice.pick([0, 0, 20, 50])
    # By name, so that a new rule leaves the cases of all seeds otherwise as they were.
    switches = dice.below(1 << 32)
    half_life_us = _seconds(dice, 20, 60, 3600)
    chosen = Policy(
        queues=tree,
        rules=tuple(rule for rule in RULES if keyed(switches, rule) % 100 >= off),
        order=dice.pick(["fair", "fair", "fair", "fair", "submission", "shortest_declared"]),
        head_blocks=dice.percent(5),
        retries=dice.below(4),
        grace_us=_seconds(dice, 0, 2, 30),
        answers_kept_us=_seconds(dice, 30, 300, 3600),
        ahead_limit_us=_seconds(dice, 10, 20),
        port_count=dice.pick([1, 2, 100]),
        checkpoints_kept=dice.between(1, 3),
        half_life_us=half_life_us,
        usage_step_us=min(_seconds(dice, 1, 5, 60), half_life_us),
        levels_us=(_seconds(dice, 5, 20), _seconds(dice, 30, 90)),
        gang_levels_us=(_seconds(dice, 5, 20), _seconds(dice, 30, 90)),
        worth_refresh_arrivals=dice.pick([1, 4, 256]),
        worth_kept_ppm=dice.pick([1_000_000, 900_000]),
        spare_nodes=dice.pick([0, 0, 0, 1]),
        recovery_hold_us=_seconds(dice, 5, 20, 60),
        upload_deadline_us=_seconds(dice, 3, 20),
        quarantine_faults=dice.between(1, 4),
        quarantine_window_us=_seconds(dice, 20, 200),
        quarantine_us=_seconds(dice, 10, 60),
        quarantined_max_ppm=dice.pick([100_000, 500_000]),
        excused_retries=dice.between(1, 8),
        immediate_us=_seconds(dice, 1, 5),
        immediate_max=dice.between(0, 4),
        elastic_interval_us=_seconds(dice, 5, 15),
        idle_timeout_us=_seconds(dice, 10, 60),
        warning_us=_seconds(dice, 1, 5),
        straggler_reports=dice.between(1, 3),
        straggler_replacements=dice.between(0, 2),
        data_heavy_bytes=1_000,
    )
    return _with_room(dice, chosen)


def _with_room(dice: Dice, chosen: Policy) -> Policy:
    """Return the policy with the numbers by which room is made and reserved."""
    return replace(
        chosen,
        reservations_max=dice.between(0, 4),
        reservation_interval_us=_seconds(dice, 5, 20),
        reservation_after_us=_seconds(dice, 5, 20),
        reservation_hard_us=_seconds(dice, 20, 60),
        room_interval_us=_seconds(dice, 2, 5, 10),
        room_searches=dice.pick([1, 4, 16]),
        preemption_grace_us=_seconds(dice, 0, 3, 10),
        min_runtime_us=_seconds(dice, 0, 5, 20),
        gang_min_runtime_us=_seconds(dice, 0, 5, 30),
        shield_step_us=_seconds(dice, 0, 5, 30),
        preemptions_max=dice.between(1, 5),
        gang_preemptions_max=dice.between(1, 5),
        moves_max=dice.between(0, 4),
        protection_from_us=_seconds(dice, 20, 60),
        protection_until_us=_seconds(dice, 80, 120),
        reclaim_after_us=_seconds(dice, 0, 5, 15),
        reclaim_min_runtime_us=_seconds(dice, 0, 5, 10),
        reclaim_interval_us=_seconds(dice, 2, 10),
        first_start_after_us=_seconds(dice, 5, 20),
        first_start_min_runtime_us=_seconds(dice, 5, 20),
        small_victim_gpus=dice.pick([1, 2, 8]),
        consolidation_jobs=dice.between(0, 4),
        consolidation_gpus=dice.between(1, 4),
        fill_nodes=dice.between(1, 3),
        fill_victims=dice.between(1, 4),
        fill_gain_gpus=dice.between(1, 4),
        batch_after_us=_seconds(dice, 5, 15),
        batch_gpus=dice.between(1, 6),
    )


def _seconds(dice: Dice, *options: int) -> int:
    return dice.pick(options) * SECOND_US
