"""Operators cordon, drain, uncordon and examine nodes; each command is answered, and a refusal names the way out."""

from gangline.events.control import CheckNode, CordonNode, DrainNode, UncordonNode
from gangline.events.decisions import (
    AttemptPreempted,
    CommandAccepted,
    CommandRefused,
    GangBound,
    JobRequeued,
    NodeCheckOrdered,
    NodeQuarantined,
    NodeReleased,
    PreemptionOrdered,
)
from gangline.events.policy import Policy
from tests.scheduler.world import World, all_of, the


def two_nodes(policy: Policy | None = None) -> World:
    world = World(Policy() if policy is None else policy)
    world.node("n-1")
    world.node("n-2")
    world.tick()
    return world


def test_nothing_new_starts_on_a_cordoned_node_and_what_runs_there_runs_on() -> None:
    world = two_nodes()
    before = world.runs(gpus=1)
    assert world.nodes_of(before) == ["n-1"]
    world.command(CordonNode, node_id="n-1", reason="its fan is loud")
    decided = world.tick()
    the(CommandAccepted, decided)
    assert not all_of(PreemptionOrdered, decided)
    after = world.runs(gpus=1)
    assert world.nodes_of(after) == ["n-2"]
    assert world.is_running(before)
    assert world.state.nodes["n-1"].cordon_reason == "its fan is loud"


def test_an_uncordoned_node_is_used_again_at_once() -> None:
    world = two_nodes()
    for node_id in ("n-1", "n-2"):
        world.command(CordonNode, node_id=node_id)
    world.tick()
    job_id = world.submit()
    world.tick()
    assert not world.is_running(job_id)
    world.command(UncordonNode, node_id="n-2")
    world.tick()
    assert world.nodes_of(job_id) == ["n-2"]


def test_a_cordon_survives_the_agents_restart() -> None:
    world = two_nodes()
    world.command(CordonNode, node_id="n-1", reason="r")
    world.tick()
    world.node("n-1", agent_id="another")
    world.tick()
    assert world.state.nodes["n-1"].is_blocked
    assert world.state.nodes["n-1"].cordon_reason == "r"


def test_a_drain_requeues_preemptible_jobs_which_start_elsewhere_and_lets_the_others_end() -> None:
    world = two_nodes()
    moved, stays = world.runs(gpus=2), world.runs(gpus=2, preemptible=False)
    assert world.nodes_of(moved) == world.nodes_of(stays) == ["n-1"]
    world.command(DrainNode, node_id="n-1")
    decided = world.tick()
    order = the(PreemptionOrdered, decided)
    assert (order.job_id, order.reason, order.claimant) == (moved, "drain", None)
    assert order.grace_us == Policy().preemption_grace_us
    world.exits(moved, -15)
    decided = world.tick()
    assert "drained" in the(AttemptPreempted, decided).cause
    assert the(JobRequeued, decided).failures_in_row == 0
    assert world.nodes_of(moved) == ["n-2"]
    assert world.is_running(stays)
    world.exits(stays)
    world.tick()
    assert world.state.nodes["n-1"].held == ()
    assert world.nodes_of(world.runs(gpus=1)) == ["n-2"]


def test_a_drain_stops_a_gang_as_a_whole_and_leaves_other_nodes_jobs_alone() -> None:
    world = two_nodes()
    gang, other = world.runs(gpus=8, nodes=2), world.runs(gpus=1)
    drained, left = ("n-1", "n-2") if world.nodes_of(other) == ["n-2"] else ("n-2", "n-1")
    world.command(DrainNode, node_id=drained)
    assert the(PreemptionOrdered, world.tick()).job_id == gang
    assert world.nodes_of(other) == [left]


def test_a_drain_orders_nothing_twice() -> None:
    world = two_nodes()
    world.runs(gpus=1)
    world.command(DrainNode, node_id="n-1")
    world.command(DrainNode, node_id="n-1")
    decided = world.tick()
    assert len(all_of(CommandAccepted, decided)) == 2
    the(PreemptionOrdered, decided)


def test_a_check_goes_to_the_agent_and_a_sick_node_is_quarantined_until_an_operator_says_so() -> None:
    world = two_nodes(Policy(rules=()))
    index = world.command(CheckNode, node_id="n-1")
    order = the(NodeCheckOrdered, world.tick())
    assert (order.node_id, order.check_index) == ("n-1", index)
    world.checks("n-1", healthy=False, report="GPU 3 is gone")
    quarantine = the(NodeQuarantined, world.tick())
    assert quarantine.until_us is None
    assert "GPU 3 is gone" in quarantine.reason
    assert world.nodes_of(world.runs(gpus=1)) == ["n-2"]
    world.command(UncordonNode, node_id="n-1")
    the(CommandAccepted, world.tick())
    assert not world.state.nodes["n-1"].is_blocked


def test_a_node_found_healthy_is_released_from_quarantine_but_stays_cordoned() -> None:
    world = two_nodes()
    world.breaks("n-1")
    the(NodeQuarantined, world.tick())
    world.command(CordonNode, node_id="n-1")
    world.command(CheckNode, node_id="n-1")
    world.tick()
    world.checks("n-1")
    assert the(NodeReleased, world.tick()).node_id == "n-1"
    node = world.state.nodes["n-1"]
    assert (node.quarantined, node.cordoned) == (False, True)


def test_a_broken_gpu_counts_again_once_its_node_is_found_healthy() -> None:
    world = two_nodes()
    world.breaks("n-1", 3)
    world.tick()
    assert world.free("n-1") == 7
    world.command(CheckNode, node_id="n-1")
    world.tick()
    world.checks("n-1")
    world.tick()
    assert world.free("n-1") == 8


def test_only_the_report_of_the_last_check_counts_and_only_once() -> None:
    world = two_nodes()
    first = world.command(CheckNode, node_id="n-1")
    second = world.command(CheckNode, node_id="n-1")
    world.tick()
    world.checks("n-1", index=first, healthy=False)
    assert not all_of(NodeQuarantined, world.tick())
    world.checks("n-1", index=second)
    world.checks("n-1", index=second, healthy=False)
    assert not all_of(NodeQuarantined, world.tick())


def test_an_agent_that_starts_while_a_check_waits_is_asked_again() -> None:
    world = two_nodes()
    index = world.command(CheckNode, node_id="n-1")
    world.tick()
    world.node("n-1", agent_id="another")
    assert the(NodeCheckOrdered, world.tick()).check_index == index
    world.checks("n-1")
    world.node("n-1", agent_id="a third")
    assert not all_of(NodeCheckOrdered, world.tick())


def test_commands_about_an_unknown_node_are_refused_with_those_there_are() -> None:
    for kind in (CordonNode, UncordonNode, DrainNode, CheckNode):
        world = two_nodes()
        world.command(kind, node_id="n-3")
        assert the(CommandRefused, world.tick()).message == "there is no node 'n-3': those there are: n-1, n-2"


def test_uncordoning_what_needs_it_not_and_checking_a_lost_node_are_refused() -> None:
    world = two_nodes()
    world.command(UncordonNode, node_id="n-1")
    assert "neither cordoned nor drained nor quarantined" in the(CommandRefused, world.tick()).message
    world.loses("n-1")
    world.command(CheckNode, node_id="n-1")
    decided = world.tick()
    assert "is lost" in the(CommandRefused, decided).message
    assert not all_of(NodeCheckOrdered, decided)
    assert not all_of(GangBound, decided)
