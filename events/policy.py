"""The quota tree and the policy: every number that the scheduler decides by, as data."""

from typing import Literal

from msgspec.structs import replace

from gangline.events.types import HOUR_US, SECOND_US, Int32, Value

Order = Literal["fair", "submission", "shortest_declared"]


class Quota(Value, frozen=True, kw_only=True):
    """What a queue has of one GPU type (empty: of every type not named), in thousandths of a GPU."""

    gpu_type: str = ""
    guarantee_milli: int | None = None
    """Null for an equal part of what its parent's other queues leave."""
    ceiling_milli: int | None = None
    """Null for as much as there is."""
    weight: Int32 = 1
    """How usage beyond guarantees compares with that of its siblings."""


class Queue(Value, frozen=True, kw_only=True):
    """A node of the quota tree, `path` being org/team/project."""

    path: str
    quotas: tuple[Quota, ...] = ()


RULES = (
    "quota",
    "fair_share",
    "levels",
    "recovering_first",
    "worth",
    "reservation",
    "consolidation",
    "reclaim",
    "priority",
    "service",
    "recovery",
    "recovery_hold",
    "first_start",
    "fill",
    "batch",
    "protection",
    "spares",
    "node_faults",
    "elastic",
    "interactive",
    "storage",
    "stragglers",
)
"""Every rule that a policy can switch; each is a module of the scheduler."""


class Policy(Value, frozen=True, kw_only=True):
    """Every number that the scheduler decides by. The defaults are those of a new log, and one policy for all."""

    queues: tuple[Queue, ...] = (Queue(path="default"),)
    retries: Int32 = 3
    grace_us: int = 30 * SECOND_US
    answers_kept_us: int = 7 * 24 * HOUR_US
    ahead_limit_us: int = HOUR_US
    port_first: Int32 = 20_000
    port_count: Int32 = 10_000
    checkpoints_kept: Int32 = 3

    rules: tuple[str, ...] = RULES
    """Those that are on."""
    order: Order = "fair"
    """In which pending jobs are tried."""
    head_blocks: bool = False
    """Whether nothing starts before the first pending job does."""
    half_life_us: int = 24 * HOUR_US
    """In which a queue's usage counts for half."""
    usage_step_us: int = 60 * SECOND_US
    """How often usage decays."""
    levels_us: tuple[int, ...] = (8 * HOUR_US, 80 * HOUR_US)
    """Run time so far from which a small job is of the next level."""
    gang_levels_us: tuple[int, ...] = (12 * HOUR_US, 24 * HOUR_US, 48 * HOUR_US, 96 * HOUR_US, 192 * HOUR_US)
    """Expected remaining time from which a multi-node gang is of the next level."""
    worth_refresh_arrivals: Int32 = 256
    """Admitted jobs between two computations of what holes are worth."""
    worth_kept_ppm: Int32 = 990_000
    """Part of the sums over arrivals that is kept at each: a job counts for half after some 18,000 others."""
    reservations_max: Int32 = 4
    """Gangs that have nodes reserved at a time."""
    reservation_interval_us: int = 600 * SECOND_US
    """How often their nodes are chosen anew."""
    reservation_after_us: int = 72 * HOUR_US
    """Wait after which a gang that no eviction can help gets a reservation; one idles nodes, so it is a last resort."""
    reservation_hard_us: int = 96 * HOUR_US
    """Wait of such a gang from which nothing new starts on its nodes."""
    room_interval_us: int = 60 * SECOND_US
    """How often room is made while jobs wait."""
    room_searches: Int32 = 16
    """Claimants for which room is sought at a time."""
    preemption_grace_us: int = 120 * SECOND_US
    """Between SIGTERM and SIGKILL of a preempted attempt, where the job names none."""
    min_runtime_us: int = 600 * SECOND_US
    """A small job that has run for less is no victim."""
    gang_min_runtime_us: int = 1800 * SECOND_US
    """The same of a multi-node gang."""
    shield_step_us: int = 300 * SECOND_US
    """By how much each preemption of a job lengthens that time for it."""
    preemptions_max: Int32 = 10
    """Of a small job; after them only reclaim may take it."""
    gang_preemptions_max: Int32 = 30
    moves_max: Int32 = 10
    """Times that a job is moved, by consolidation."""
    protection_from_us: int = 12 * HOUR_US
    """A gang whose waits add up to this is protected, but for reclaim ..."""
    protection_until_us: int = 24 * HOUR_US
    """... until they add up to this."""
    reclaim_after_us: int = 240 * SECOND_US
    """Wait, in all, after which a job within guarantee takes borrowed GPUs."""
    reclaim_min_runtime_us: int = 120 * SECOND_US
    """A borrower that has run for less is no victim of it."""
    reclaim_interval_us: int = 120 * SECOND_US
    """How often one borrowing gang goes for small claims."""
    first_start_after_us: int = 2 * HOUR_US
    """Wait after which a gang never started comes before the rest."""
    first_start_min_runtime_us: int = 4 * HOUR_US
    """Run time from which a gang may give way to such a one."""
    small_victim_gpus: Int32 = 8
    """The largest job that is evicted for a lower level."""
    consolidation_jobs: Int32 = 2
    """Jobs moved off a node to open it."""
    consolidation_gpus: Int32 = 4
    """The largest job that is moved."""
    fill_nodes: Int32 = 4
    """Wholly free nodes from which a larger gang may replace smaller ones."""
    fill_victims: Int32 = 4
    fill_gain_gpus: Int32 = 32
    batch_after_us: int = 600 * SECOND_US
    """Wait from which small jobs count together."""
    batch_gpus: Int32 = 128
    """GPUs that they ask for together, for which one borrowing gang goes."""
    spare_nodes: Int32 = 0
    """Whole nodes kept for recovery only."""
    spare_ppm: Int32 = 0
    """The same as a part of all nodes; the larger number counts."""
    recovery_hold_us: int = 600 * SECOND_US
    """How long the surviving GPUs of a failed gang stay held for its next attempt."""
    upload_deadline_us: int = 600 * SECOND_US
    """How long the next attempt waits for an upload in flight."""
    quarantine_faults: Int32 = 3
    """Faults of a node within `quarantine_window_us` that quarantine it."""
    quarantine_window_us: int = 24 * HOUR_US
    quarantine_us: int = 24 * HOUR_US
    """After which a quarantined node is tried again."""
    quarantined_max_ppm: Int32 = 100_000
    """Part of the nodes, at least one, that may be quarantined at a time: more looks like one cause, not sick nodes."""
    excused_retries: Int32 = 20
    """Failures in a row that were not the job's own, after which it ends all the same."""
    immediate_us: int = 60 * SECOND_US
    """A failure so soon after the binding is an immediate one."""
    immediate_max: Int32 = 5
    """Immediate failures in a row that end a job, whatever its retries."""
    elastic_interval_us: int = 600 * SECOND_US
    """How often gangs grow."""
    elastic_gain_ppm: Int32 = 250_000
    """By what part of its GPUs a gang grows at least: each time it starts anew."""
    idle_timeout_us: int = HOUR_US
    """Of an interactive job that names none."""
    warning_us: int = 600 * SECOND_US
    """How long before its max_runtime a job is warned."""
    straggler_reports: Int32 = 3
    """Reports of a slow rank after which its node is replaced."""
    straggler_replacements: Int32 = 2
    """Nodes replaced for one job; if it is slow still, the job is."""
    data_heavy_bytes: int = 1 << 40
    """What a job writes from which it is held back under storage pressure."""
    array_max: Int32 = 10_000
    """Tasks of an array."""
    after_max: Int32 = 100
    """Jobs that one may wait for."""


def with_queue(policy: Policy, queue: Queue) -> Policy:
    """Return the policy with this queue, in the place of the one with its path if there is one."""
    if any(one.path == queue.path for one in policy.queues):
        queues = tuple(queue if one.path == queue.path else one for one in policy.queues)
    else:
        queues = (*policy.queues, queue)
    return replace(policy, queues=queues)


def without_queue(policy: Policy, path: str) -> Policy:
    """Return the policy without a queue."""
    return replace(policy, queues=tuple(queue for queue in policy.queues if queue.path != path))
