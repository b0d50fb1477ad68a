"""Over days, teams that always want more than there is share a cluster by their weights, or by their guarantees."""

from collections import defaultdict
from collections.abc import Sequence

import pytest

from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import HOUR_US, WHOLE_MILLI, JobSpec
from gangline.simulator.observer import Observer
from gangline.simulator.run import Run, Segment
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import Work, uniform_nodes
from gangline.simulator.world import World

NODES, NODE_GPUS, DAYS = 4, 8, 3
TOLERANCE = 0.03
"""What was used of late is the cluster for half_life / ln 2, which is 34.6 h by default. Who is behind gets all that
becomes free, so that he may be ahead by all GPUs for as long as the jobs run that he got: for 1 h here, 1 / 34.6 of it.
"""
Jobs = Sequence[tuple[int, int]]
"""(GPUs, hours of work) of a team's jobs, again and again."""
MIXED: Jobs = ((1, 1), (8, 1), (2, 1), (4, 1))
ONES: Jobs = ((1, 1),)
NODEFULS: Jobs = ((8, 1),)


class GpuTime(Observer):
    """How many GPUs times microseconds the jobs of each queue have occupied."""

    def __init__(self) -> None:
        self.us: defaultdict[str, int] = defaultdict(int)

    def did(self, job: VirtualJob, run: Run, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self.us[job.work.spec.queue] += run.gpus * (segment.to_us - segment.from_us)


def flood(jobs: dict[str, Jobs]) -> list[Work]:
    """Return the jobs of teams that each submit twice what the whole cluster could do, all the time."""
    found: list[tuple[int, str, int, int]] = []
    for queue in sorted(jobs):
        asked, number = 0, 0
        while asked < 2 * NODES * NODE_GPUS * DAYS * 24:
            gpus, hours = jobs[queue][number % len(jobs[queue])]
            found.append((asked * HOUR_US // (2 * NODES * NODE_GPUS), queue, gpus, hours))
            asked, number = asked + gpus * hours, number + 1
    return [
        Work(
            number=number,
            submit_us=at_us,
            spec=JobSpec(name=f"{queue}-{number}", queue=queue, command=("train",), gpus=gpus),
            work_us=hours * HOUR_US,
        )
        for number, (at_us, queue, gpus, hours) in enumerate(sorted(found))
    ]


def shared(queues: tuple[Queue, ...], jobs: dict[str, Jobs]) -> float:
    """Return which part of the GPU-time that both teams had was the heavy one's, of a cluster that was full."""
    seen = GpuTime()
    world = World(
        nodes=uniform_nodes(NODES, gpus=NODE_GPUS),
        policy=Policy(queues=queues),
        works=flood(jobs),
        observers=(seen,),
    )
    world.run(DAYS * 24 * HOUR_US)
    total = sum(seen.us.values())
    assert total > 0.95 * NODES * NODE_GPUS * DAYS * 24 * HOUR_US
    return seen.us["heavy"] / total


def weighing(weight: int, guarantee_gpus: int) -> tuple[Quota]:
    return (Quota(guarantee_milli=guarantee_gpus * WHOLE_MILLI, weight=weight),)


@pytest.mark.parametrize(
    ("guarantee_gpus", "light", "heavy"),
    [
        pytest.param(0, MIXED, MIXED, id="alike"),
        pytest.param(4, MIXED, MIXED, id="alike-with-equal-guarantees"),
        pytest.param(0, NODEFULS, ONES, id="whole-nodes-of-the-light-one"),
    ],
)
def test_teams_of_weights_one_and_three_have_a_quarter_and_three_quarters(
    guarantee_gpus: int, light: Jobs, heavy: Jobs
) -> None:
    queues = (
        Queue(path="light", quotas=weighing(1, guarantee_gpus)),
        Queue(path="heavy", quotas=weighing(3, guarantee_gpus)),
    )
    assert abs(shared(queues, {"light": light, "heavy": heavy}) - 0.75) <= TOLERANCE


def test_a_guarantee_lets_a_team_have_its_whole_nodes_beside_a_flood_of_small_jobs() -> None:
    """A weight alone does not: it evicts nobody, and small jobs fill at once what becomes free of a node."""
    queues = (Queue(path="light", quotas=weighing(1, 8)), Queue(path="heavy", quotas=weighing(1, 24)))
    assert abs(shared(queues, {"light": ONES, "heavy": NODEFULS}) - 0.75) <= TOLERANCE
