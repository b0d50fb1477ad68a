"""A rank that is slow for long has its node replaced; a job that is slow wherever it runs has not."""

from gangline.events.control import RankSlow
from gangline.events.decisions import NodeQuarantined, PreemptionOrdered
from gangline.events.policy import Policy
from tests.scheduler.world import World, all_of, rules_without, the


def cluster(policy: Policy | None = None, nodes: int = 3) -> World:
    world = World(policy or Policy(quarantined_max_ppm=1_000_000))
    for number in range(1, nodes + 1):
        world.node(f"n-{number}", 8)
    return world


def slow(world: World, job_id: str, rank: int, reports: int = 3) -> None:
    for _ in range(reports):
        world.is_slow(job_id, rank)


def starts_anew(world: World, job_id: str) -> None:
    world.exits(job_id, -15)
    world.settle()


def test_a_node_with_a_slow_rank_is_replaced() -> None:
    world = cluster()
    job_id = world.runs(gpus=16)
    slow(world, job_id, 9)
    decided = world.tick()
    quarantined = the(NodeQuarantined, decided)
    assert quarantined.node_id == "n-2"
    assert quarantined.reason == f"rank 9 of {job_id} took 150% of its peers' time for a step"
    preempted = the(PreemptionOrdered, decided)
    assert (preempted.job_id, preempted.reason, preempted.claimant) == (job_id, "straggler", None)
    starts_anew(world, job_id)
    assert world.nodes_of(job_id) == ["n-1", "n-3"]
    assert world.job(job_id).failures_in_row == 0


def test_a_few_reports_are_not_enough_nor_are_those_of_an_attempt_before() -> None:
    world = cluster()
    job_id = world.runs(gpus=16)
    slow(world, job_id, 9, reports=2)
    world.tick()
    world.exits(job_id, 1)
    world.settle()
    slow(world, job_id, 9, reports=2)
    assert not all_of(NodeQuarantined, world.tick())


def test_a_repeated_record_is_one_report() -> None:
    world = cluster()
    job_id = world.runs(gpus=16)
    world.is_slow(job_id, 9)
    for _ in range(5):
        world.append_bytes(world.control[-1].value)
    assert not all_of(NodeQuarantined, world.tick())


def test_the_slowest_of_several_goes_first() -> None:
    world = cluster()
    job_id = world.runs(gpus=16)
    for _ in range(3):
        world.is_slow(job_id, 1, slowness_ppm=1_200_000)
        world.is_slow(job_id, 9, slowness_ppm=3_000_000)
    assert the(NodeQuarantined, world.tick()).node_id == "n-2"


def test_a_rank_that_is_slow_on_another_node_too_is_slow_by_itself() -> None:
    world = cluster(nodes=4)
    job_id = world.runs(gpus=16)
    slow(world, job_id, 0)
    world.tick()
    starts_anew(world, job_id)
    slow(world, job_id, 0)
    assert not all_of(NodeQuarantined, world.tick())
    assert world.attempt(job_id).preempted is None


def test_no_more_nodes_are_replaced_for_one_job_than_policy_allows() -> None:
    world = cluster(Policy(straggler_replacements=1, quarantined_max_ppm=1_000_000), nodes=4)
    job_id = world.runs(gpus=16)
    slow(world, job_id, 0)
    world.tick()
    starts_anew(world, job_id)
    slow(world, job_id, 9)
    assert not all_of(NodeQuarantined, world.tick())


def test_a_job_that_may_not_be_preempted_is_left_alone() -> None:
    world = cluster()
    job_id = world.runs(gpus=16, preemptible=False)
    slow(world, job_id, 9)
    assert not world.tick()


def test_when_too_many_nodes_are_quarantined_slow_ones_stay() -> None:
    world = cluster(Policy(quarantined_max_ppm=0), nodes=4)
    first, second = world.runs(gpus=8), world.runs(gpus=8)
    slow(world, first, 0)
    slow(world, second, 0)
    assert len(all_of(NodeQuarantined, world.tick())) == 1


def test_a_policy_without_the_rule_replaces_nothing() -> None:
    world = cluster(Policy(rules=rules_without("stragglers")))
    job_id = world.runs(gpus=16)
    slow(world, job_id, 9)
    assert not all_of(PreemptionOrdered, world.tick())


def test_a_report_of_a_rank_that_runs_elsewhere_cannot_be() -> None:
    world = cluster()
    job_id = world.runs(gpus=16)
    slow_elsewhere = RankSlow(
        meta=world.meta(), job_id=job_id, attempt=1, node_id="n-1", rank=9, slowness_ppm=2_000_000
    )
    index = world.append(slow_elsewhere)
    assert "rank 9 does not run on node 'n-1'" in world.state.failed_inputs[index]
