"""Every job can be asked why it waits, and the answer names what it needs and what there is."""

from typing import Any

import pytest

from gangline.scheduler.explain import explain
from tests.scheduler.world import World

PENDING: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a small gang": (
        [{"gpus": 7}, {"gpus": 6}],
        {"gpus": 4},
        "needs 4 free GPUs on one node; n-2, the freest node, has 2",
    ),
    "a fraction": (
        [{"gpus": 8}, {"gpus": 7}, {"gpu_milli": 600}],
        {"gpu_milli": 500},
        "needs 500 thousandths of one GPU; n-2, the freest node, has 400 of one",
    ),
    "a large gang": ([{"gpus": 1}], {"gpus": 16}, "needs 2 wholly free nodes of 8 GPUs of one type; 1 of type H100"),
    "a large gang with a remainder": (
        [{"gpus": 7}],
        {"gpus": 12},
        "needs 1 wholly free nodes of 8 GPUs of one type and one more with 4 free GPUs; 1 of type H100",
    ),
    "a spread gang": ([{"gpus": 8}], {"gpus": 4, "nodes": 2}, "needs 2 nodes of one type with 2 free GPUs each; 1 of"),
    "a gang without CPU": (
        [{"gpus": 1, "cpu_milli": 60_000}, {"gpus": 8}],
        {"gpus": 2, "cpu_milli": 3_000},
        "the freest node, has 7, but 4000m CPU and",
    ),
}


@pytest.mark.parametrize("name", PENDING)
def test_it_explains_why_it_waits(name: str) -> None:
    running, changes, text = PENDING[name]
    world = World()
    world.node("n-1")
    world.node("n-2")
    for fields in running:
        world.runs(**fields)
    job_id = world.submit(**changes)
    world.tick()
    assert not world.is_running(job_id)
    assert text in explain(world.state, job_id)
    assert explain(world.state, job_id).startswith("it waits, first of all that are pending: ")


def test_it_counts_those_before_it() -> None:
    world = World()
    jobs = [world.submit(), world.submit(), world.submit(priority=1)]
    world.tick()
    assert explain(world.state, jobs[1]) == (
        "it waits, with 2 pending before it: no node has registered yet; start an agent"
    )


def test_it_tells_that_the_type_is_gone_or_the_nodes_have_shrunk() -> None:
    world = World()
    special, large = world.submit(gpu_types=("H100",)), world.submit(gpus=8)
    world.tick()
    world.node("n-1", 4, gpu_type="A100")
    world.tick()
    assert "no node has a GPU of type H100" in explain(world.state, special)
    assert "even empty they do not hold it: cancel it" in explain(world.state, large)


def test_it_tells_what_runs_stops_has_ended_and_is_not_known() -> None:
    world = World()
    world.node("n-1", 1)
    world.node("n-2", 1)
    job_id = world.runs(gpus=2)
    assert explain(world.state, job_id) == "attempt 1 runs on n-1, n-2"
    world.exits(job_id, 1, node_id="n-1")
    world.tick()
    assert explain(world.state, job_id) == (
        "attempt 1 is told to stop (rank 0 on node n-1 exited with code 1); its ranks are not reported gone from n-2"
    )
    world.cancel(job_id)
    world.gone(job_id)
    world.tick()
    assert explain(world.state, job_id) == "it has ended: cancelled"
    assert "no job 'job-x' is known here" in explain(world.state, "job-x")


def test_a_job_was_not_explained_once_all_nodes_had_lost_their_gpus() -> None:
    world = World()
    world.node("n-1")
    world.runs(gpus=8)
    job_id = world.submit(gpus=8)
    world.tick()
    world.node("n-1", gpus=0, boot_id="next", agent_id="next")
    world.tick()
    assert "no node has any" in explain(world.state, job_id)
