"""Random steps in the life of a small cluster, drawn by whoever walks them; and orders in which maps were filled."""

from collections.abc import Callable
from typing import TypeVar

from immutables import Map
from msgspec.structs import replace

from gangline.events.control import (
    CheckNode,
    CordonNode,
    DrainNode,
    Heartbeat,
    HoldJob,
    ReleaseJob,
    RemoveQueue,
    ReprioritiseJob,
    RetryJob,
    SetQueue,
    StoragePressureChanged,
    TickerTookOver,
    UncordonNode,
)
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import AttemptRef, Event, JobSpec, Role
from gangline.scheduler.state import Attempt, Job, State
from tests.scheduler.world import SECOND_US, World

Pick = Callable[[int], int]
"""Draws one of 0 ... n - 1."""

K = TypeVar("K")
V = TypeVar("V")

NODES = ("n-1", "n-2", "n-3", "n-10")
SIZES: list[int | tuple[int, ...]] = [4, 4, 4, 2, (1, 3, 5, 7)]
JOBS_ALIVE = 12
"""Above this no more are submitted, so that a long walk has more than waiting in it."""


class Lcg:
    """Draws the same numbers in every version of Python (Knuth's MMIX generator)."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def __call__(self, below: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % below


def any_of(pick: Pick, options: list[V]) -> V:
    return options[pick(len(options))]


def register(world: World, pick: Pick) -> None:
    number = pick(len(NODES))
    world.node(
        NODES[number],
        any_of(pick, SIZES),
        pod=f"pod-{number % 2}",
        gpu_type="A100" if number == 3 else "H100",
        cpu_milli=any_of(pick, [8_000, 8_000, 4_000]),
        memory_bytes=8_000,
    )


def submit(world: World, pick: Pick) -> None:
    if len(world.state.jobs) >= JOBS_ALIVE:
        return
    gpus, gpu_milli, nodes = any_of(
        pick,
        [
            (1, 1000, None),
            (1, 300, None),
            (1, 700, None),
            (2, 1000, None),
            (4, 1000, 2),
            (6, 1000, None),
            (11, 1000, None),
        ],
    )
    actors = Role(name="actor", ranks=1 + pick(4), cpu_milli=500, gpu_milli=any_of(pick, [0, 0, 400, 1000]))
    roles = (actors,) if pick(5) == 0 else ()
    world.submit(
        gpus=gpus,
        gpu_milli=gpu_milli,
        nodes=nodes,
        priority=pick(3),
        cpu_milli=any_of(pick, [0, 500, 1_000]),
        memory_bytes=any_of(pick, [0, 100]),
        gpu_types=any_of(pick, [(), (), ("A100",), ("H100", "A100"), ("B200",)]),
        retries=any_of(pick, [None, 0, 1]),
        max_runtime_us=any_of(pick, [None, None, 7 * SECOND_US]),
        env={f"V{number}": "x" for number in range(pick(4))},
        queue=any_of(pick, ["default", "default", "default", "nowhere"]),
        array=any_of(pick, [None] * 6 + [2, 3]),
        after=any_of(pick, [(), (), (), (earlier(world, pick),)]),
        data_bytes=any_of(pick, [0, 0, 2 << 40]),
        interactive=gpus == 1 and not roles and pick(3) == 0,
        roles=roles,
    )


def earlier(world: World, pick: Pick) -> str:
    """Return a job or an array that is known, or one that is not."""
    return any_of(pick, ["job-unknown", *sorted(world.state.jobs), *sorted(world.state.arrays)])


def press(world: World, pick: Pick) -> None:
    pressed = pick(3) == 0
    world.append(StoragePressureChanged(meta=world.meta(), store="file:///s", pressed=pressed, used_ppm=1))


def someone(world: World, pick: Pick, *, running: bool) -> str | None:
    jobs = [job_id for job_id, job in sorted(world.state.jobs.items()) if job.attempt is not None or not running]
    return any_of(pick, jobs) if jobs else None


def cancel(world: World, pick: Pick) -> None:
    arrays = sorted(world.state.arrays)
    if arrays and pick(3) == 0:
        world.cancel(any_of(pick, arrays))
    else:
        world.cancel(someone(world, pick, running=False) or "job-unknown")


def start(world: World, pick: Pick) -> None:
    if job_id := someone(world, pick, running=True):
        world.starts(job_id)


def leave(world: World, pick: Pick) -> None:
    """Let some or all ranks of a gang end."""
    if job_id := someone(world, pick, running=True):
        code = any_of(pick, [0, 0, 1, -9])
        nodes = world.nodes_of(job_id)
        how = pick(5)
        if how == 0:
            world.exits(job_id, code, rank=pick(world.attempt(job_id).bound.world_size), gone=False)
        elif how == 1:
            world.gone(job_id, any_of(pick, nodes))
        elif how == 2:
            world.cannot_start(job_id, "it does not start", node_id=any_of(pick, nodes), retryable=pick(2) == 1)
        else:
            world.exits(job_id, code, node_id=any_of(pick, [*nodes, None]))


def checkpoint(world: World, pick: Pick) -> None:
    if job_id := someone(world, pick, running=False):
        world.checkpoint(job_id, pick(50), attempt=max(world.job(job_id).attempts - pick(2), 0))


def report(world: World, pick: Pick) -> None:
    """Report an upload begun, a job idle, or a rank slow."""
    if job_id := someone(world, pick, running=True):
        how = pick(3)
        if how == 0:
            world.uploads(job_id, pick(50))
        elif how == 1:
            world.idles(job_id, 1 + pick(9))
        else:
            world.is_slow(job_id, pick(world.attempt(job_id).bound.world_size))


def reject(world: World, pick: Pick) -> None:
    job_id = someone(world, pick, running=True)
    if job_id and world.job(job_id).checkpoints:
        world.rejects(job_id, any_of(pick, list(world.job(job_id).checkpoints)))


def lose(world: World, pick: Pick) -> None:
    world.loses(any_of(pick, list(NODES)))


def recover(world: World, pick: Pick) -> None:
    """Let a node be heard of again, which says nothing of what it still has; or let its agent list that."""
    node_id = any_of(pick, list(NODES))
    node = world.state.nodes.get(node_id)
    if node is None or pick(2):
        world.recovers(node_id)
        return
    stale = [AttemptRef(job_id=one.job_id, attempt=one.attempt) for one in node.stale]
    world.node(
        node_id,
        node.gpus,
        pod=node.pod,
        gpu_type=node.gpu_type,
        cpu_milli=node.cpu_milli,
        memory_bytes=node.memory_bytes,
        boot_id=any_of(pick, ["boot", "boot", "another"]),
        agent_id=f"agent-{len(world.control)}",
        attempts=tuple(one for one in stale if pick(2)),
    )


def break_down(world: World, pick: Pick) -> None:
    world.breaks(any_of(pick, list(NODES)), None if pick(8) == 0 else pick(4))


def leave_late(world: World, pick: Pick) -> None:
    """Report gone what an ended attempt left on a lost node."""
    stale = [(node_id, one) for node_id in NODES for one in getattr(world.state.nodes.get(node_id), "stale", ())]
    if stale:
        node_id, one = any_of(pick, stale)
        world.left(one.job_id, one.attempt, node_id)


def operate(world: World, pick: Pick) -> None:
    """Send a command about a node, or the report of a check."""
    node_id = any_of(pick, [*NODES, "n-99"])
    node = world.state.nodes.get(node_id)
    if node is not None and node.check_index is not None and pick(2):
        world.checks(node_id, healthy=pick(3) > 0, report="the disk is full")
        return
    kinds: list[type[Event]] = [CordonNode, DrainNode, UncordonNode, UncordonNode, CheckNode]
    kind = any_of(pick, kinds)
    world.command(kind, node_id=node_id)


def change_job(world: World, pick: Pick) -> None:
    """Send a command about a job or an array."""
    job_id = earlier(world, pick)
    kinds: list[type[Event]] = [HoldJob, ReleaseJob, ReleaseJob, RetryJob, ReprioritiseJob]
    kind = any_of(pick, kinds)
    fields = {"priority": pick(5)} if kind is ReprioritiseJob else {}
    world.command(kind, job_id=job_id, **fields)


def change_queue(world: World, pick: Pick) -> None:
    path = any_of(pick, ["default", "q1", "q2", "q1/sub"])
    if pick(2):
        world.command(RemoveQueue, path=path)
    else:
        quota = Quota(guarantee_milli=any_of(pick, [None, 2_000, 4_000]), ceiling_milli=any_of(pick, [None, 3_000]))
        world.command(SetQueue, queue=Queue(path=path, quotas=(quota,)))


def repeat(world: World, pick: Pick) -> None:
    """Append a record again, as an append that was not acknowledged is."""
    world.append_bytes(any_of(pick, world.control[-20:]).value)


def babble(world: World, pick: Pick) -> None:
    """Append what cannot be read, or does not belong here."""
    value = any_of(pick, world.control[-20:]).value
    if pick(2):
        world.append_bytes(value[: 10 + pick(20)] + bytes([pick(256)]))
    else:
        world.append(Heartbeat(meta=world.meta(), node_id="n-1", boot_id="b", agent_id="a", sequence=pick(9)))


def reform(world: World, pick: Pick) -> None:
    world.activate(
        Policy(
            queues=(Queue(path="default"), Queue(path=f"q{pick(3)}")),
            retries=pick(3) - (pick(9) == 0) * 5,
            answers_kept_us=any_of(pick, [20, 60]) * SECOND_US,
            ahead_limit_us=10 * SECOND_US,
            port_count=any_of(pick, [2, 100]),
            checkpoints_kept=1 + pick(3),
            quarantine_faults=1 + pick(3),
            straggler_reports=1 + pick(2),
            upload_deadline_us=any_of(pick, [5, 50]) * SECOND_US,
            quarantine_us=any_of(pick, [10, 100]) * SECOND_US,
            quarantined_max_ppm=any_of(pick, [100_000, 600_000]),
        )
    )


def take_over(world: World, _pick: Pick) -> None:
    world.append(TickerTookOver(meta=world.meta(), ticker="t"))


def tick(world: World, pick: Pick) -> None:
    seconds = any_of(pick, [0, 1, 1, 3, 5, 5, 100_000, -100_000])
    world.tick(seconds, ticker=any_of(pick, ["t"] * 9 + ["other"]))
    if abs(seconds) > 5:
        world.at_us -= seconds * SECOND_US  # it was that tick's clock that was wrong


STEPS: list[Callable[[World, Pick], None]] = [
    *[register] * 2,
    *[submit] * 5,
    cancel,
    start,
    *[leave] * 6,
    lose,
    *[recover] * 2,
    break_down,
    press,
    *[operate] * 2,
    *[change_job] * 2,
    change_queue,
    *[leave_late] * 2,
    *[checkpoint] * 2,
    *[report] * 2,
    reject,
    repeat,
    babble,
    reform,
    take_over,
    *[tick] * 8,
]


def walk(world: World, pick: Pick, steps: int, *, after: Callable[[World], None] | None = None) -> None:
    """Take so many steps; run `after` behind each."""
    for _ in range(steps):
        any_of(pick, STEPS)(world, pick)
        if after is not None:
            after(world)


# --- the same state, filled in another order ---


def shuffled_dict(values: dict[K, V], pick: Pick) -> dict[K, V]:
    items = list(values.items())
    return dict(items.pop(pick(len(items))) for _ in range(len(items)))


def shuffled_map(values: Map[K, V], pick: Pick) -> Map[K, V]:
    """Return an equal map, filled in another order, with others put in and taken out in between."""
    found: Map[K, V] = Map()
    items = list(values.items())
    while items:
        key, value = items.pop(pick(len(items)))
        found = found.set(key, value)
        if pick(2):
            found = found.delete(key).set(key, value)
    return found


def shuffled_spec(spec: JobSpec, pick: Pick) -> JobSpec:
    return replace(spec, env=shuffled_dict(spec.env, pick))


def shuffled_job(job: Job, pick: Pick) -> Job:
    attempt: Attempt | None = job.attempt
    if attempt is not None:
        attempt = replace(attempt, bound=replace(attempt.bound, env=shuffled_dict(attempt.bound.env, pick)))
    return replace(job, spec=shuffled_spec(job.spec, pick), attempt=attempt)


def shuffled(state: State, pick: Pick) -> State:
    """Return an equal state whose maps were all filled in another order."""
    jobs = Map((job_id, shuffled_job(job, pick)) for job_id, job in state.jobs.items())
    state = replace(state, jobs=jobs)
    tables = {
        name: shuffled_map(value, pick)
        for name in State.__struct_fields__
        if isinstance(value := getattr(state, name), Map)
    }
    return replace(state, **tables)
