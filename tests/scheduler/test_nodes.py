"""Nodes: what they register, what stays held when they register again, and the ports of rendezvous."""

from gangline.events.policy import Policy
from tests.scheduler.world import World


def ports(world: World, *jobs: str) -> list[int]:
    return [world.attempt(job_id).bound.master_port for job_id in jobs]


def test_a_restarted_agent_finds_its_gangs_still_holding_their_gpus() -> None:
    world = World()
    world.node("n-1", 4)
    job_id = world.runs(gpus=3, cpu_milli=1_000)
    world.node("n-1", 4)
    assert world.state.nodes["n-1"].free_milli == (0, 0, 0, 1000)
    assert world.state.nodes["n-1"].cpu_free_milli == 61_000
    world.exits(job_id)
    assert world.state.nodes["n-1"].free_milli == (1000,) * 4
    assert world.state.nodes["n-1"].cpu_free_milli == 64_000


def test_a_device_that_was_missing_for_a_while_is_still_held() -> None:
    world = World()
    world.node("n-1", 2)
    job_id = world.runs(gpus=2)
    world.node("n-1", 1)
    world.node("n-1", 2)
    assert world.state.nodes["n-1"].free_milli == (0, 0)
    world.exits(job_id)
    assert world.state.nodes["n-1"].free_milli == (1000, 1000)


def test_a_device_that_went_missing_is_not_given_back() -> None:
    world = World()
    world.node("n-1", 2)
    job_id = world.runs(gpus=2)
    world.node("n-1", 1)
    world.exits(job_id)
    assert world.state.nodes["n-1"].free_milli == (1000,)
    assert world.state.nodes["n-1"].held == ()


def test_a_node_that_shrinks_below_what_runs_there_takes_nobody_in() -> None:
    world = World()
    world.node("n-1", 2, cpu_milli=8_000)
    world.runs(cpu_milli=6_000)
    world.node("n-1", 2, cpu_milli=4_000)
    waits = world.submit(cpu_milli=1)
    takes = world.submit()
    world.tick()
    assert not world.is_running(waits)
    assert world.is_running(takes)


def test_gpus_are_free_only_when_reported_gone() -> None:
    world = World()
    world.node("n-1", 2)
    job_id = world.runs(gpus=2)
    world.exits(job_id, 1, gone=False)
    world.tick()
    world.cancel(job_id)
    world.passes(3600)
    assert world.free("n-1") == 0, "no clock frees a GPU"
    world.gone(job_id)
    assert world.free("n-1") == 2


def test_reporting_gone_twice_frees_once() -> None:
    world = World()
    world.node("n-1", 2)
    job_id = world.runs(gpus=1)
    world.gone(job_id)
    world.gone(job_id)
    world.cannot_start(job_id, "x")
    assert world.state.nodes["n-1"].free_milli == (1000, 1000)


def test_a_new_address_is_that_of_the_next_binding() -> None:
    world = World()
    world.node("n-1", pod="a")
    world.node("n-1", pod="b")
    assert world.state.nodes["n-1"].pod == "b"
    assert len(world.state.nodes) == 1


def test_gangs_of_a_node_have_ports_of_their_own_and_a_new_attempt_a_new_one() -> None:
    world = World(Policy(port_first=20_000, port_count=10))
    world.node("n-1")
    world.node("n-2")
    first, second = world.runs(), world.runs()
    elsewhere = world.runs(gpus=8)
    [start] = ports(world, first)
    assert ports(world, second, elsewhere) == [_port_after(start, 1, 10), start]
    world.exits(first, 1)
    world.tick()
    assert ports(world, first) == [_port_after(start, 2, 10)]


def test_two_logs_begin_at_different_ports_so_that_they_can_share_a_machine() -> None:
    worlds = [World(log_id=log_id) for log_id in ("one", "another")]
    for world in worlds:
        world.node("n-1")
    [one], [another] = [ports(world, world.runs()) for world in worlds]
    assert one != another


def _port_after(port: int, steps: int, count: int) -> int:
    return 20_000 + (port - 20_000 + steps) % count


def test_ports_start_over_and_leave_out_those_in_use() -> None:
    world = World(Policy(port_first=20_000, port_count=3))
    world.node("n-1")
    stays = world.runs()
    [start] = ports(world, stays)
    for steps in (1, 2, 1, 2):
        job_id = world.runs()
        assert ports(world, stays, job_id) == [start, _port_after(start, steps, 3)]
        world.exits(job_id)
        world.tick()


def test_without_a_free_port_a_gang_waits() -> None:
    world = World(Policy(port_first=20_000, port_count=1))
    world.node("n-1")
    first, second = world.submit(), world.submit()
    world.tick()
    assert world.is_running(first)
    assert not world.is_running(second)
    world.exits(first)
    world.tick()
    assert ports(world, second) == [20_000]


def test_a_gang_keeps_its_port_while_only_other_nodes_of_it_are_gone() -> None:
    world = World(Policy(port_first=20_000, port_count=2))
    world.node("n-1")
    world.node("n-2")
    job_id = world.runs(gpus=2, nodes=2)
    world.gone(job_id, "n-2")
    world.tick()
    other = world.runs()
    assert world.nodes_of(other) == ["n-1"]
    assert sorted(ports(world, job_id, other)) == [20_000, 20_001]
