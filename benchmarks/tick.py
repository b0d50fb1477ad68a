"""How long a round takes: at 4,096 GPUs with 10,000 pending jobs, at ten times the GPUs, and in four hard cases."""

import statistics
import sys
import time
from collections.abc import Iterator

from benchmarks.figures import Figure
from benchmarks.log_fold import quiet_collector
from benchmarks.tick_world import GANGS, GPUS, HOUR_US, TickWorld
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import JobSpec
from gangline.scheduler.explain import explain

SIZES = ((4_096, 10_000, 100.0), (40_960, 50_000, 1_000.0))
"""GPUs, pending jobs, and the goal for the 99th percentile in ms."""
ROUNDS = 200
QUICK_ROUNDS = 40
ALLOCATED_PERCENT = 97
GANG_PERCENT = 60
ENDED_PER_ROUND = 100
"""One job of so many that run ends in a round."""
CASE_NODES = 500
CASE_GOAL_S = 1.0
CASE_ROUNDS = 400
KAI = {"jobs_4000": 398, "gang_512": 49, "unschedulable": 250, "reclaim": 102}
"""Seconds that KAI-Scheduler's published runs took for the same."""


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield the times of a round at both sizes, and of the four cases."""
    with quiet_collector():
        for gpus, pending, goal_ms in SIZES:
            yield from _rounds(gpus, pending, goal_ms, QUICK_ROUNDS if quick else ROUNDS)
        for name, case in (
            ("jobs_4000", jobs_4000),
            ("gang_512", gang_512),
            ("unschedulable", unschedulable),
            ("reclaim", reclaim),
        ):
            took_s, note = case()
            yield Figure(
                name=f"tick.{name}_s",
                value=took_s,
                unit="s",
                goal=CASE_GOAL_S,
                better="lower",
                reference=f"KAI-Scheduler's published run {KAI[name]} s; {note}",
            )


def _rounds(gpus: int, pending: int, goal_ms: float, rounds: int) -> Iterator[Figure]:
    start = time.perf_counter()
    world = busy_world(gpus, pending)
    print(
        f"  {gpus:,} GPUs, {len(world.running):,} jobs run, {len(world.state.pending):,} wait, after "
        f"{time.perf_counter() - start:.0f} s",
        file=sys.stderr,
    )
    took_ms = [1000 * one for one in churned(world, rounds, pending)]
    percentiles = statistics.quantiles(took_ms, n=100)
    for name, value, goal in (("p50", percentiles[49], None), ("p99", percentiles[98], goal_ms)):
        yield Figure(
            name=f"tick.{name}_ms_{gpus}",
            value=value,
            unit="ms",
            goal=goal,
            better="lower",
            reference=f"{rounds} rounds, {len(world.running):,} jobs run, {pending:,} wait in 40 queues; "
            f"longest {max(took_ms):.0f} ms",
        )


def policy_of(gpus: int) -> Policy:
    """Return the default policy with four teams of nine projects: forty queues."""
    share = gpus * 1000 // 4
    queues = [Queue(path=f"team-{team}", quotas=(Quota(guarantee_milli=share),)) for team in range(4)]
    queues += [Queue(path=f"team-{team}/project-{number}") for team in range(4) for number in range(9)]
    return Policy(queues=tuple(queues), preemption_grace_us=30_000_000)


def projects(world: TickWorld) -> list[str]:
    """Return the queues that take jobs."""
    policy = world.state.policy
    return [queue.path for queue in policy.queues if "/" in queue.path] if policy is not None else []


def busy_world(gpus: int, pending: int) -> TickWorld:
    """Return a cluster of which 97% runs the mix, three fifths gangs, with so many jobs pending."""
    world = TickWorld(gpus // GPUS, policy_of(gpus))
    queues = projects(world)
    draw = world.random
    for percent, make in ((GANG_PERCENT, world.gang), (ALLOCATED_PERCENT, None)):
        while True:
            left = gpus * percent // 100 - world.allocated_milli // 1000
            if left < (GANGS[0] if make else GPUS):
                break
            if make:
                batch = [make(draw.choice(queues), left)]
            else:
                batch = [world.small(draw.choice(queues)) for _ in range(1 + left // GPUS)]
            world.submit(batch)
            world.settle()
            world.pass_time(HOUR_US // 2)
    world.submit([world.arrival(draw.choice(queues)) for _ in range(pending - len(world.state.pending))])
    world.settle()
    world.took_s.clear()
    return world


def churned(world: TickWorld, rounds: int, pending: int) -> list[float]:
    """Let one running job of a hundred end each round and another arrive, and return what each round took, in s."""
    queues = projects(world)
    took: list[float] = []
    for _ in range(rounds):
        jobs = sorted(world.running)
        world.end(world.random.sample(jobs, max(len(jobs) // ENDED_PER_ROUND, 1)))
        missing = pending - len(world.state.pending)
        world.submit([world.arrival(world.random.choice(queues)) for _ in range(max(missing, 0))])
        before = len(world.took_s)
        world.tick()
        took += world.took_s[before:]
    return took


# --- the four cases ---


def _case_world(nodes: int = CASE_NODES) -> TickWorld:
    quota = (Quota(guarantee_milli=nodes * GPUS * 500),)
    queues = (Queue(path="a", quotas=quota), Queue(path="b", quotas=quota))
    return TickWorld(nodes, Policy(queues=queues, preemption_grace_us=30_000_000))


def _one(queue: str, gpus: int = 1, nodes: int | None = None, *, preemptible: bool = True) -> JobSpec:
    return JobSpec(
        name="case", queue=queue, command=("python", "train.py"), gpus=gpus, nodes=nodes, preemptible=preemptible
    )


def _until_bound(world: TickWorld, job_ids: list[str]) -> float:
    world.took_s.clear()
    for _ in range(CASE_ROUNDS):
        world.tick()
        if all(job_id in world.running for job_id in job_ids):
            return sum(world.took_s)
    raise AssertionError("they never start")


def jobs_4000() -> tuple[float, str]:
    """Time the rounds that start 4,000 jobs of one GPU."""
    world = _case_world()
    return _until_bound(world, world.submit([_one("a")] * 4_000)), f"{len(world.took_s)} rounds"


def gang_512() -> tuple[float, str]:
    """Time the rounds that start a gang on 512 whole nodes."""
    world = _case_world(512)
    return _until_bound(world, world.submit([_one("a", 512 * GPUS, 512)])), "on 512 nodes"


def unschedulable() -> tuple[float, str]:
    """Time the round that finds no room for a gang of 80 GPUs, and the answer why."""
    world = _case_world()
    _until_bound(world, world.submit([_one(queue, preemptible=False) for queue in ("a", "b") for _ in range(2_000)]))
    (job_id,) = world.submit([_one("a", 80)])
    world.took_s.clear()
    world.tick()
    start = time.perf_counter()
    why = explain(world.state, job_id)
    return sum(world.took_s) + time.perf_counter() - start, why


def reclaim() -> tuple[float, str]:
    """Time the rounds from the submission of a gang of 2,000 GPUs, within guarantee, to its binding."""
    world = _case_world()
    _until_bound(world, world.submit([_one("a")] * 4_000))
    world.pass_time(HOUR_US)
    taken = _until_bound(world, world.submit([_one("b", 2_000)]))
    return taken, f"{len(world.took_s)} rounds"
