"""How long a round takes: at 4,096 GPUs with 10,000 pending jobs, at ten times the GPUs, and in four hard cases."""

import statistics
import sys
import time
from collections.abc import Iterator

from benchmarks.figures import Figure
from benchmarks.log_fold import quiet_collector
from benchmarks.tick_world import GANGS, GPUS, TickWorld, Took, Watch, total
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import HOUR_US, JobSpec
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
            took, note = case()
            yield Figure(
                name=f"tick.{name}_s",
                value=took.wall_s,
                unit="s",
                goal=CASE_GOAL_S,
                better="lower",
                reference=f"CPU time {took.cpu_s:.2f} s; KAI-Scheduler's published run {KAI[name]} s; {note}",
            )


def _rounds(gpus: int, pending: int, goal_ms: float, rounds: int) -> Iterator[Figure]:
    start = time.perf_counter()
    world = busy_world(gpus, pending)
    print(
        f"  {gpus:,} GPUs, {len(world.running):,} jobs run, {len(world.state.pending):,} wait, after "
        f"{time.perf_counter() - start:.0f} s",
        file=sys.stderr,
    )
    took = churned(world, rounds, pending)
    wall_ms = [1000 * one.wall_s for one in took]
    by_wall = statistics.quantiles(wall_ms, n=100)
    by_cpu = statistics.quantiles([1000 * one.cpu_s for one in took], n=100)
    for name, percent, goal in (("p50", 50, None), ("p99", 99, goal_ms)):
        yield Figure(
            name=f"tick.{name}_ms_{gpus}",
            value=by_wall[percent - 1],
            unit="ms",
            goal=goal,
            better="lower",
            reference=f"CPU time {by_cpu[percent - 1]:.0f} ms; {rounds} rounds, {len(world.running):,} jobs run, "
            f"{pending:,} wait in 40 queues; longest {max(wall_ms):.0f} ms",
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
    return world


def churned(world: TickWorld, rounds: int, pending: int) -> list[Took]:
    """Let one running job of a hundred end each round and another arrive, and return what each round took."""
    queues = projects(world)
    took: list[Took] = []
    for _ in range(rounds):
        jobs = sorted(world.running)
        world.end(world.random.sample(jobs, max(len(jobs) // ENDED_PER_ROUND, 1)))
        missing = pending - len(world.state.pending)
        world.submit([world.arrival(world.random.choice(queues)) for _ in range(max(missing, 0))])
        world.tick()
        took.append(world.took[-1])
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


def _until_bound(world: TickWorld, job_ids: list[str]) -> Took:
    world.took.clear()
    for _ in range(CASE_ROUNDS):
        world.tick()
        if all(job_id in world.running for job_id in job_ids):
            return total(world.took)
    raise AssertionError("they never start")


def jobs_4000() -> tuple[Took, str]:
    """Time the rounds that start 4,000 jobs of one GPU."""
    world = _case_world()
    return _until_bound(world, world.submit([_one("a")] * 4_000)), f"{len(world.took)} rounds"


def gang_512() -> tuple[Took, str]:
    """Time the rounds that start a gang on 512 whole nodes."""
    world = _case_world(512)
    return _until_bound(world, world.submit([_one("a", 512 * GPUS, 512)])), "on 512 nodes"


def unschedulable() -> tuple[Took, str]:
    """Time the round that finds no room for a gang of 80 GPUs, and the answer why."""
    world = _case_world()
    _until_bound(world, world.submit([_one(queue, preemptible=False) for queue in ("a", "b") for _ in range(2_000)]))
    (job_id,) = world.submit([_one("a", 80)])
    world.tick()
    watch = Watch()
    why = explain(world.state, job_id)
    return total([world.took[-1], watch.took()]), why


def reclaim() -> tuple[Took, str]:
    """Time the rounds from the submission of a gang of 2,000 GPUs, within guarantee, to its binding."""
    world = _case_world()
    _until_bound(world, world.submit([_one("a")] * 4_000))
    world.pass_time(HOUR_US)
    taken = _until_bound(world, world.submit([_one("b", 2_000)]))
    return taken, f"{len(world.took)} rounds"
