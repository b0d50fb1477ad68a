"""A fault script takes down what it names, for as long as it says, and names nothing that is not there."""

import pytest

from gangline.events.decisions import PreemptionOrdered
from gangline.events.policy import Policy
from gangline.events.types import JobSpec
from gangline.simulator import faults
from gangline.simulator.faults import BadFault, Fault
from gangline.simulator.observer import Observer
from gangline.simulator.run import Run
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import COMPLETIONS, SECOND_US, Work, uniform_nodes
from gangline.simulator.world import World

MINUTE_US = 60 * SECOND_US


def world(*sizes: int, script: tuple[Fault, ...], nodes: int = 2) -> World:
    works = [
        Work(
            number=number,
            submit_us=0,
            spec=JobSpec(name=f"job-{number}", queue="default", command=("train",), gpus=gpus),
            work_us=30 * MINUTE_US,
        )
        for number, gpus in enumerate(sizes)
    ]
    made = World(nodes=uniform_nodes(nodes, pods=2), policy=Policy(rules=()), works=works)
    faults.schedule(script, made)
    made.run()
    return made


def ended_minutes(made: World) -> list[int]:
    assert {job.outcome for job in made.jobs} == {"succeeded"}
    return [(job.ended_us or 0) // MINUTE_US for job in made.jobs]


def test_a_lost_node_takes_its_job_with_it_and_the_job_begins_anew_elsewhere() -> None:
    fault = Fault(at_us=10 * MINUTE_US, part="node", node_id="node-0", down_us=60 * MINUTE_US)
    assert ended_minutes(world(8, script=(fault,))) == [40]


def test_what_ran_on_a_lost_node_waits_for_it_where_there_is_no_other() -> None:
    fault = Fault(at_us=10 * MINUTE_US, part="node", node_id="node-1", down_us=20 * MINUTE_US)
    assert ended_minutes(world(16, script=(fault,))) == [60]


def test_a_pod_switch_takes_all_nodes_of_the_pod() -> None:
    fault = Fault(at_us=10 * MINUTE_US, part="pod", pod="pod-0", down_us=20 * MINUTE_US)
    made = world(8, 8, 8, script=(fault,), nodes=4)
    down = [job for job in made.jobs if (job.ended_us or 0) > 31 * MINUTE_US]
    assert len(down) == 2, "two of four nodes lie in the pod"


def test_a_broken_gpu_holds_up_only_what_needs_it() -> None:
    fault = Fault(at_us=10 * MINUTE_US, part="gpu", node_id="node-0", gpu=7, down_us=20 * MINUTE_US)
    assert ended_minutes(world(8, script=(fault,), nodes=1)) == [60]
    assert ended_minutes(world(1, script=(fault,), nodes=1)) == [30]


def test_a_killed_rank_restarts_its_job() -> None:
    fault = Fault(at_us=10 * MINUTE_US, part="rank", job="job-0", rank=9)
    assert ended_minutes(world(16, 0 + 8, script=(fault,), nodes=3)) == [40, 30]


def test_a_rank_of_a_job_that_does_not_run_is_not_killed() -> None:
    fault = Fault(at_us=50 * MINUTE_US, part="rank", job="job-0")
    assert ended_minutes(world(8, script=(fault,))) == [30]


class _KilledInGrace(Observer):
    """Kills a rank of whoever is told to give way, 10 s later."""

    def __init__(self) -> None:
        self.world: World | None = None

    def ordered(self, at_us: int, job: VirtualJob, run: Run, decision: PreemptionOrdered) -> None:
        if self.world is not None:
            self.world.timeline.at(at_us + 10 * SECOND_US, self._kill, job, phase=COMPLETIONS)

    def _kill(self, job: VirtualJob) -> None:
        if self.world is not None:
            self.world.agents.kill_rank(job, 0)


def test_a_gang_that_lost_a_rank_while_it_gave_way_held_its_other_nodes_for_ever() -> None:
    low, high = (
        Work(
            number=number,
            submit_us=number * 60 * MINUTE_US,
            spec=JobSpec(name=f"job-{number}", queue="default", command=("train",), gpus=16, priority=number),
            work_us=90 * MINUTE_US,
            save_us=30 * SECOND_US,
            save_interval_us=10 * MINUTE_US,
        )
        for number in range(2)
    )
    killer = _KilledInGrace()
    killer.world = World(nodes=uniform_nodes(2), policy=Policy(), works=(low, high), observers=(killer,))
    killer.world.run()
    first, second = killer.world.jobs
    assert first.preemptions == 1
    assert second.waited_us < 5 * MINUTE_US


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(at_us=0, part="node", node_id="node-9"), "no node 'node-9'"),
        (Fault(at_us=0, part="gpu", node_id="node-0", gpu=8), "has 8 GPUs"),
        (Fault(at_us=0, part="pod", pod="pod-9"), "no pod 'pod-9'"),
        (Fault(at_us=0, part="rank", job="nobody"), "no job 'nobody'"),
    ],
)
def test_a_name_that_is_not_there_is_refused(fault: Fault, said: str) -> None:
    with pytest.raises(BadFault, match=said):
        world(8, script=(fault,))
