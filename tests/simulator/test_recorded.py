"""A log of gangline is a trace: its jobs, nodes and queues are simulated again, under the same policy or another."""

import pytest

from gangline.events.memory import MemoryLog
from gangline.events.policy import Policy, Queue
from gangline.events.types import JobSpec
from gangline.simulator import compare
from gangline.simulator.plan import NamedPolicy
from gangline.simulator.recorded import BareLog, of_log
from gangline.simulator.work import SECOND_US, Failure, Work, uniform_nodes
from gangline.simulator.world import World
from tests.simulator.test_log import simulated

TREE = (Queue(path="team"), Queue(path="team/project"))


def job(number: int, **changes: object) -> Work:
    fields: dict[str, object] = {
        "number": number,
        "submit_us": number * 60 * SECOND_US,
        "spec": JobSpec(name=f"job-{number}", queue="team/project", command=("train",), gpus=4),
        "work_us": 1_000 * SECOND_US,
    } | changes
    return Work(**fields)  # type: ignore[arg-type] # the fields are those of Work


def test_the_same_jobs_come_on_the_same_nodes_and_queues() -> None:
    log = MemoryLog()
    works = [job(0), job(1), job(2)]
    World(nodes=uniform_nodes(2, pods=2), policy=Policy(queues=TREE), works=works, log=log).run()
    plan = of_log(log, "past")
    assert [node.node_id for node in plan.nodes] == ["node-0", "node-1"]
    assert [(work.submit_us, work.spec) for work in plan.works] == [(work.submit_us, work.spec) for work in works]
    assert plan.queues == TREE
    assert [work.work_us for work in plan.works] == [1_000 * SECOND_US] * 3


def test_work_that_was_lost_is_not_done_again() -> None:
    log = MemoryLog()
    works = [job(0, save_us=SECOND_US, save_interval_us=100 * SECOND_US, fails=True)]

    def fail(_work: Work, attempt: int, _gpus: int, _shares: int) -> Failure | None:
        return Failure(after_us=350 * SECOND_US, share=0) if attempt == 1 else None

    World(nodes=uniform_nodes(1), policy=Policy(queues=TREE), works=works, failures=fail, log=log).run()
    (work,) = of_log(log, "past").works
    assert work.work_us == pytest.approx(1_009 * SECOND_US, abs=3 * SECOND_US), "1,000 s of work, and nine saves"


def test_a_simulation_of_a_simulation_comes_out_alike() -> None:
    log = MemoryLog()
    before = simulated(log)
    after = compare.run(of_log(log, "past"), NamedPolicy(name="default", policy=Policy()))
    assert after.summary.succeeded == len(before.jobs)
    waits = [sum(job.waited_us for job in jobs) for jobs in (before.jobs, after.recorder.jobs)]
    assert waits[1] == pytest.approx(waits[0], rel=0.25)


def test_a_log_on_which_nothing_ran_is_refused() -> None:
    log = MemoryLog()
    World(nodes=uniform_nodes(1), policy=Policy(), works=[], log=log).run()
    with pytest.raises(BareLog, match="no job has run"):
        of_log(log, "past")
