"""Strict orders give the starts of an independent program, job by job, and a preemption costs what it should."""

from pathlib import Path

import pytest

from benchmarks.queueing_reference import Asked, by_duration, by_submission, starts
from gangline.events.policy import Policy
from gangline.simulator import philly, queueing
from gangline.simulator.work import SECOND_US, uniform_nodes
from gangline.simulator.world import World

SLICE = Path(__file__).parent / "fixtures/philly_slice.csv"
NODES = 8


@pytest.mark.parametrize("order", ["submission", "shortest_declared"])
def test_a_strict_order_starts_every_job_when_the_reference_does(order: str) -> None:
    trace = philly.jobs(SLICE)
    works = queueing.works(trace, divide=9, declared=order == "shortest_declared")
    policy = Policy(order=order, head_blocks=True, rules=())  # type: ignore[arg-type] # it is one of the orders
    world = World(nodes=uniform_nodes(NODES), policy=policy, works=works)
    world.run()
    asked = [
        Asked(position, work.submit_us // SECOND_US, work.work_us // SECOND_US, work.spec.gpus)
        for position, work in enumerate(works)
    ]
    expected = starts(asked, NODES, 8, by_submission if order == "submission" else by_duration)
    assert {position: (job.first_start_us or 0) // SECOND_US for position, job in enumerate(world.jobs)} == expected
    assert {job.outcome for job in world.jobs} == {"succeeded"}
    waits = [expected[one.position] - one.arrival_s for one in asked]
    found = queueing.summary(world.jobs)
    assert found.mean_s == pytest.approx(sum(waits) / len(waits))
    assert found.mean_s > 1_000, "this slice has no queue, and tests nothing"
    assert found.preemptions_per_job == 0
