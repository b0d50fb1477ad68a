"""A simulation ends when its jobs have, however long nothing is decided in between."""

import pytest

from gangline.events.policy import Policy, Queue
from gangline.events.types import JobSpec
from gangline.simulator.work import SECOND_US, Work, uniform_nodes
from gangline.simulator.world import World

DAY_US = 86_400 * SECOND_US


def world(*works: tuple[int, int]) -> World:
    """Return a node with jobs, given by when they are submitted and how long they work, in days."""
    spec = JobSpec(name="job", queue="default", command=("train",), gpus=1)
    return World(
        nodes=uniform_nodes(1, gpus=8, pods=1),
        policy=Policy(queues=(Queue(path="default"),)),
        works=[
            Work(number=number, submit_us=submit * DAY_US, spec=spec, work_us=days * DAY_US)
            for number, (submit, days) in enumerate(works)
        ],
    )


@pytest.mark.parametrize("works", [((0, 600),), ((0, 1), (600, 1))])
def test_a_long_job_and_a_long_gap_are_waited_for(works: tuple[tuple[int, int], ...]) -> None:
    found = world(*works)
    found.run()
    assert found.live == 0
