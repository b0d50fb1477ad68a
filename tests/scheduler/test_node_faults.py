"""Lost nodes and broken hardware: what stops, what stays held, what is quarantined, and whose fault it was."""

from msgspec.structs import replace

from gangline.events.control import NodeLost, NodeRecovered
from gangline.events.decisions import (
    AttemptEnded,
    AttemptStopOrdered,
    GangBound,
    JobEnded,
    JobRequeued,
    NodeQuarantined,
    NodeReleased,
)
from gangline.events.policy import Policy
from gangline.events.types import AttemptRef
from tests.scheduler.world import SECOND_US, World, all_of, rules_without, the


def two_nodes_and_a_spare(policy: Policy | None = None) -> World:
    world = World(policy or Policy())
    for node_id in ("n-1", "n-2", "n-3"):
        world.node(node_id, 8)
    return world


# --- losing a node ---


def test_a_lost_node_stops_the_whole_attempt_which_does_not_wait_for_it() -> None:
    world = two_nodes_and_a_spare()
    job_id = world.runs(gpus=16)
    world.loses("n-2")
    stop = the(AttemptStopOrdered, world.tick())
    assert (stop.job_id, stop.reason) == (job_id, "node_lost")
    world.exits(job_id, -15, node_id="n-1")
    decided = world.tick()
    assert the(AttemptEnded, decided).cause == "node n-2 was lost"
    assert the(JobRequeued, decided).job_id == job_id


def test_what_the_detector_said_changes_nothing_when_it_comes_again_however_late() -> None:
    world = two_nodes_and_a_spare()
    lost = NodeLost(meta=world.meta(), node_id="n-2", boot_id="boot")
    world.append(lost)
    recovered = NodeRecovered(meta=world.meta(), node_id="n-2", boot_id="boot")
    world.append(recovered)
    world.append(lost)
    assert not world.state.nodes["n-2"].lost
    world.loses("n-2")
    world.append(recovered)
    assert world.state.nodes["n-2"].lost


def test_a_node_that_is_no_spare_any_more_takes_who_waits() -> None:
    world = World(replace(Policy(), spare_nodes=1))
    world.node("n-1", 8)
    job_id = world.submit(gpus=4)
    world.tick()
    assert not world.is_running(job_id)
    world.breaks("n-1", 7)
    world.tick()
    assert world.is_running(job_id)


def test_the_next_attempt_binds_elsewhere_at_once_though_the_lost_ranks_were_never_reported_gone() -> None:
    world = two_nodes_and_a_spare()
    job_id = world.runs(gpus=16)
    world.loses("n-2")
    world.tick()
    world.exits(job_id, -15, node_id="n-1")
    world.settle()
    assert world.attempt(job_id).bound.attempt == 2
    assert world.nodes_of(job_id) == ["n-1", "n-3"]


def test_nothing_starts_on_a_lost_node() -> None:
    world = World()
    world.node("n-1", 8)
    world.loses("n-1")
    job_id = world.submit()
    world.tick()
    assert not world.is_running(job_id)


def test_a_node_heard_of_again_is_used_again() -> None:
    world = World()
    world.node("n-1", 8)
    world.loses("n-1")
    job_id = world.submit()
    world.tick()
    world.recovers("n-1")
    world.tick()
    assert world.is_running(job_id)


def lost_with_ranks_there() -> tuple[World, str]:
    """Return a world in which attempt 1 ended without n-2, where its ranks may still run; attempt 2 is elsewhere."""
    world = two_nodes_and_a_spare()
    job_id = world.runs(gpus=16)
    world.loses("n-2")
    world.tick()
    world.exits(job_id, -15, node_id="n-1")
    world.settle()
    return world, job_id


def test_a_node_that_comes_back_stays_closed_until_its_old_ranks_are_reported_gone() -> None:
    world, job_id = lost_with_ranks_there()
    world.recovers("n-2")
    waits = world.submit()
    world.tick()
    assert not world.is_running(waits)
    assert world.state.nodes["n-2"].free_milli == (0,) * 8
    world.left(job_id, 1, "n-2")
    world.tick()
    assert world.nodes_of(waits) == ["n-2"]
    assert world.attempt(job_id).bound.attempt == 2


def test_ranks_reported_gone_before_the_node_is_heard_of_free_it_for_then() -> None:
    world, job_id = lost_with_ranks_there()
    world.left(job_id, 1, "n-2")
    assert world.free("n-2") == 8
    waits = world.submit()
    world.tick()
    assert not world.is_running(waits)
    world.recovers("n-2")
    world.tick()
    assert world.is_running(waits)


def test_an_agent_that_registers_without_saying_what_runs_leaves_everything_held() -> None:
    world, _ = lost_with_ranks_there()
    world.node("n-2", 8, agent_id="another")
    assert world.free("n-2") == 0
    assert world.state.nodes["n-2"].is_blocked


def test_an_agent_that_lists_its_shims_frees_the_node_of_all_others() -> None:
    world, job_id = lost_with_ranks_there()
    world.node("n-2", 8, agent_id="another", attempts=(AttemptRef(job_id=job_id, attempt=1),))
    assert world.free("n-2") == 0
    world.node("n-2", 8, agent_id="a third", attempts=())
    assert world.free("n-2") == 8
    assert not world.state.nodes["n-2"].is_blocked


def test_a_job_that_ended_with_a_lost_node_leaves_its_share_held_there() -> None:
    world = two_nodes_and_a_spare(Policy(excused_retries=0))
    job_id = world.runs(gpus=16)
    world.loses("n-2")
    world.tick()
    world.exits(job_id, -15, node_id="n-1")
    ended = the(JobEnded, world.tick())
    assert ended.outcome == "failed"
    assert ended.cause == (
        "node n-2 was lost; that was failure 1 in a row that was not its own, without a newer committed checkpoint, "
        "and excused_retries is 0"
    )
    world.node("n-2", 8, agent_id="another")
    assert world.free("n-2") == 0


def test_ranks_gone_before_the_attempt_ends_are_not_held_afterwards() -> None:
    world = two_nodes_and_a_spare()
    job_id = world.runs(gpus=16)
    world.loses("n-2")
    world.tick()
    world.recovers("n-2")
    world.gone(job_id, "n-2")
    world.exits(job_id, -15, node_id="n-1")
    world.tick()
    assert not world.state.nodes["n-2"].stale
    assert not world.state.nodes["n-2"].is_blocked


def test_a_loss_of_an_earlier_boot_is_old_news() -> None:
    world = World()
    world.node("n-1", 8, boot_id="second")
    world.loses("n-1", boot_id="first")
    assert not world.state.nodes["n-1"].lost


def test_a_repeated_registration_of_the_agent_that_was_lost_is_no_sign_of_life() -> None:
    world = World()
    world.node("n-1", 8)
    world.loses("n-1")
    world.node("n-1", 8)
    assert world.state.nodes["n-1"].lost
    world.node("n-1", 8, agent_id="another")
    assert not world.state.nodes["n-1"].lost


def test_a_registration_delivered_again_late_freed_what_may_still_run() -> None:
    world = two_nodes_and_a_spare()
    world.node("n-2", 8, agent_id="another", attempts=())
    registered = world.control[-1].value
    job_id = world.runs(gpus=16)
    world.loses("n-2")
    world.tick()
    world.exits(job_id, -15, node_id="n-1")
    world.tick()
    world.recovers("n-2")
    assert world.free("n-2") == 0
    world.append_bytes(registered)
    assert world.free("n-2") == 0
    assert world.state.nodes["n-2"].is_blocked


def test_a_registration_delivered_again_late_brought_old_hardware_back() -> None:
    world = World()
    world.node("n-1", 8)
    registered = world.control[-1].value
    world.node("n-1", 4, agent_id="another", boot_id="next")
    world.append_bytes(registered)
    assert world.state.nodes["n-1"].gpus == (0, 1, 2, 3)
    assert world.state.nodes["n-1"].boot_id == "next"


def test_a_cancelled_job_ends_without_waiting_for_a_lost_node() -> None:
    world = World()
    world.node("n-1", 8)
    job_id = world.runs(gpus=8)
    world.cancel(job_id)
    world.tick()
    world.loses("n-1")
    ended = the(JobEnded, world.tick())
    assert (ended.outcome, ended.cause) == ("cancelled", "cancelled")


def test_a_loss_that_a_dying_rank_was_the_first_sign_of_is_the_nodes_fault() -> None:
    world = two_nodes_and_a_spare()
    job_id = world.runs(gpus=16, retries=0)
    world.exits(job_id, 1, rank=0, gone=False)
    assert the(AttemptStopOrdered, world.tick()).reason == "rank_failed"
    world.loses("n-2")
    world.exits(job_id, -15, node_id="n-1")
    requeued = the(JobRequeued, world.tick())
    assert (requeued.cause, requeued.failures_in_row, requeued.excused_in_row) == ("node n-2 was lost", 0, 1)


def test_a_boot_ends_what_ran_and_is_the_nodes_fault() -> None:
    world = two_nodes_and_a_spare()
    job_id = world.runs(gpus=16, retries=0)
    world.node("n-2", 8, boot_id="second", agent_id="another")
    assert the(AttemptStopOrdered, world.tick()).reason == "rank_failed"
    world.exits(job_id, -9)
    assert the(JobRequeued, world.tick()).cause == "node n-2 booted"


# --- broken hardware ---


def test_a_broken_gpu_stops_what_uses_it_and_nothing_else_and_is_used_no_more() -> None:
    world = World()
    world.node("n-1", 4)
    other = world.runs(gpus=2)
    job_id = world.runs(gpus=2)
    assert world.placement(job_id) == [("n-1", (2, 3))]
    world.breaks("n-1", 3)
    assert the(AttemptStopOrdered, world.tick()).job_id == job_id
    world.exits(job_id, -15)
    assert the(JobRequeued, world.tick()).cause == "GPU 3 of node n-1 failed: Xid 79: it fell off the bus"
    assert world.state.nodes["n-1"].free_milli == (0, 0, 1000, 0)
    assert not world.is_running(job_id)
    world.exits(other)
    world.tick()
    assert world.placement(job_id) == [("n-1", (0, 1))]


def test_a_broken_gpu_counts_again_once_its_node_has_booted() -> None:
    world = World()
    world.node("n-1", 4)
    world.breaks("n-1", 3)
    world.node("n-1", 4, agent_id="another")
    assert world.free("n-1") == 3
    world.node("n-1", 4, boot_id="second", agent_id="a third")
    assert world.free("n-1") == 4


def test_hardware_that_fails_as_a_whole_is_quarantined_until_an_operator_says_so() -> None:
    world = two_nodes_and_a_spare()
    world.breaks("n-2", reason="a fan")
    quarantined = the(NodeQuarantined, world.tick())
    assert (quarantined.node_id, quarantined.until_us, quarantined.reason) == ("n-2", None, "a fan")
    assert world.state.nodes["n-2"].is_blocked
    world.breaks("n-2", reason="a fan")
    assert not all_of(NodeQuarantined, world.tick())


# --- quarantine ---


def test_a_node_that_fails_again_and_again_is_quarantined_and_tried_again_later() -> None:
    world = World(Policy(quarantine_faults=3, quarantine_us=600 * SECOND_US))
    world.node("n-1", 8)
    decided = []
    for _ in range(3):
        world.loses("n-1")
        decided += world.tick()
        world.recovers("n-1")
        decided += world.tick()
    quarantined = the(NodeQuarantined, decided)
    assert quarantined.reason == "3 faults within 24 h, the last: it was lost"
    assert quarantined.until_us == world.state.now_us - SECOND_US + 600 * SECOND_US
    job_id = world.submit()
    assert not all_of(NodeReleased, world.passes(595))
    assert not world.is_running(job_id)
    decided = world.passes(10)
    assert the(NodeReleased, decided).node_id == "n-1"
    assert the(GangBound, decided).job_id == job_id


def test_faults_older_than_the_window_do_not_count() -> None:
    world = World(Policy(quarantine_faults=2, quarantine_window_us=60 * SECOND_US))
    world.node("n-1", 8)
    for _ in range(3):
        world.loses("n-1")
        assert not all_of(NodeQuarantined, world.tick())
        world.recovers("n-1")
        world.passes(60)


def test_one_job_cannot_quarantine_a_node_by_failing_to_launch_there() -> None:
    world = World(Policy(quarantine_faults=2, excused_retries=10))
    world.node("n-1", 8)
    job_id = world.runs()
    for _ in range(5):
        world.cannot_start(job_id, "the disk is full", retryable=True, blame="node")
        assert not all_of(NodeQuarantined, world.settle())
    other = world.runs()
    world.cannot_start(other, "the disk is full", retryable=True, blame="node")
    assert the(NodeQuarantined, world.settle()).reason.endswith(f"it could not launch {other}: the disk is full")


def test_launches_that_fail_through_the_job_or_nobody_do_not_count_against_the_node() -> None:
    world = World(Policy(quarantine_faults=1))
    world.node("n-1", 8)
    world.cannot_start(world.runs(), "no such command", blame="job")
    world.tick()
    world.cannot_start(world.runs(), "port 20000 is in use", retryable=True, blame="neither")
    world.settle()
    assert not world.state.nodes["n-1"].faults


def test_many_faulty_nodes_at_once_are_not_all_quarantined() -> None:
    world = World(Policy(quarantine_faults=1, quarantined_max_ppm=200_000))
    for number in range(10):
        world.node(f"n-{number}", 8)
    for number in range(10):
        world.loses(f"n-{number}")
    assert len(all_of(NodeQuarantined, world.tick())) == 2


def test_a_policy_without_the_rule_quarantines_nothing() -> None:
    world = World(Policy(quarantine_faults=1, rules=rules_without("node_faults")))
    world.node("n-1", 8)
    world.loses("n-1")
    assert not all_of(NodeQuarantined, world.tick())


# --- retries ---


def test_failures_that_were_not_the_jobs_own_do_not_use_up_its_retries() -> None:
    world = World(Policy(quarantine_faults=0))
    world.node("n-1", 8)
    job_id = world.runs(retries=0)
    for _ in range(5):
        world.loses("n-1")
        world.tick()
        world.recovers("n-1")
        world.left(job_id, world.job(job_id).attempts, "n-1")
        world.settle()
    assert world.attempt(job_id).bound.attempt == 6
    world.exits(job_id, 1)
    assert "that was failure 1 in a row without" in the(JobEnded, world.tick()).cause


def test_a_port_in_use_is_tried_elsewhere_without_using_up_retries_but_not_without_end() -> None:
    world = World(Policy(excused_retries=3))
    world.node("n-1", 8)
    job_id = world.runs(retries=0)
    ports = []
    for _ in range(3):
        ports.append(world.attempt(job_id).bound.master_port)
        world.cannot_start(job_id, "the port is in use", retryable=True)
        world.settle()
    assert len(set(ports)) == 3
    world.cannot_start(job_id, "the port is in use", retryable=True)
    assert the(JobEnded, world.tick()).cause.endswith("and excused_retries is 3")


def test_a_job_that_crashes_right_after_every_start_ends_whatever_its_retries() -> None:
    world = World(Policy(immediate_max=5))
    world.node("n-1", 8)
    job_id = world.runs(retries=1_000)
    for _ in range(4):
        world.exits(job_id, 1)
        world.settle()
    world.exits(job_id, 1)
    assert the(JobEnded, world.tick()).cause == (
        "rank 0 on node n-1 exited with code 1; that was failure 5 in a row within 60 s of its start, "
        "and immediate_max is 5: it would go on for ever"
    )


def test_a_crash_long_after_the_start_begins_the_count_of_immediate_ones_anew() -> None:
    world = World(Policy(immediate_max=2))
    world.node("n-1", 8)
    job_id = world.runs(retries=1_000)
    world.exits(job_id, 1)
    world.settle()
    world.passes(120)
    world.exits(job_id, 1)
    world.settle()
    world.exits(job_id, 1)
    world.settle()
    assert world.attempt(job_id).bound.attempt == 4


def test_a_newer_checkpoint_forgives_failures_of_every_kind() -> None:
    world = two_nodes_and_a_spare(Policy(excused_retries=1, quarantine_faults=0))
    job_id = world.runs(gpus=16)
    for step in range(5):
        world.checkpoint(job_id, step)
        world.tick()
        world.loses("n-2")
        world.tick()
        world.recovers("n-2")
        world.exits(job_id, -15)
        world.settle()
    assert world.attempt(job_id).bound.attempt == 6


def test_a_fault_told_again_late_breaks_no_device_that_was_replaced_since() -> None:
    world = World()
    world.node("n-1", 8)
    world.breaks("n-1", 0)
    fault = world.control[-1].value
    world.node("n-1", 8, boot_id="next", agent_id="another")
    job_id = world.runs(gpus=8)
    world.append_bytes(fault)
    world.tick()
    assert world.is_running(job_id)
    assert world.state.nodes["n-1"].broken_gpus == ()
