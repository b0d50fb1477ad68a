"""What holds of every history: no GPU is given twice, gangs are whole, and the log alone gives the state."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gangline.scheduler.canonical import from_bytes, to_bytes
from gangline.scheduler.decide import next_due_us
from gangline.scheduler.order import natural
from gangline.scheduler.state import Attempt, Node
from tests.scheduler.replay import replayed
from tests.scheduler.steps import Lcg, Pick, shuffled, walk
from tests.scheduler.world import World

SLOW = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
SHRINKS = pytest.mark.timeout(600)
"""A failing walk is shortened for up to five minutes."""


def picks(data: st.DataObject) -> Pick:
    return lambda below: data.draw(st.integers(0, below - 1))


def held_here(world: World, node: Node) -> list[tuple[str, Attempt, int]]:
    """Return (job, attempt, index of its share) of all that a node holds, found from the gangs."""
    return [
        (job_id, job.attempt, index)
        for job_id, job in sorted(world.state.jobs.items())
        if job.attempt is not None
        for index, share in enumerate(job.attempt.bound.shares)
        if share.node_id == node.node_id and not job.attempt.status[index].gone
    ]


def check_nodes(world: World) -> None:
    for node in world.state.nodes.values():
        held = held_here(world, node)
        shares = [attempt.bound.shares[index] for _, attempt, index in held]
        assert node.held == tuple(dict.fromkeys(job_id for job_id, _, _ in held))
        shares += [one.share for one in node.stale]
        for gpu, free in zip(node.gpus, node.free_milli, strict=True):
            used = sum(share.gpu_milli for share in shares if gpu in share.gpus)
            assert free + used == 1000 or (free == 0 and gpu in node.broken_gpus)
            assert used <= 1000, f"GPU {gpu} of {node.node_id} is given twice"
        assert node.cpu_free_milli + sum(share.cpu_milli for share in shares) == node.cpu_milli
        assert node.memory_free_bytes + sum(share.memory_bytes for share in shares) == node.memory_bytes
        ports = [a.bound.master_port for _, a, index in held if index == 0]
        assert len(set(ports)) == len(ports), "two gangs share a port"


def check_jobs(world: World) -> None:
    state = world.state
    for job_id, job in state.jobs.items():
        assert (job_id in state.pending) == (job.attempt is None)
        assert job_id not in state.ended
        if job.attempt is None:
            continue
        bound = job.attempt.bound
        assert bound.attempt == job.attempts
        world_size = job.spec.gpus + sum(role.ranks for role in job.spec.roles)
        assert [rank for share in bound.shares for rank in share.ranks] == list(range(world_size)), "not whole"
        own = [share for share in bound.shares if not share.role]
        assert len({share.node_id for share in own}) == len(own)
        assert len(bound.shares) == len(job.attempt.status)
        assert bound.world_size == world_size
        if job.spec.nodes is not None:
            assert len(own) == job.spec.nodes
    assert set(state.pending) <= set(state.jobs)
    assert set(state.deadlines) <= {job_id for job_id, job in state.jobs.items() if job.attempt is not None}
    if state.deadlines:
        assert state.deadlines_from_us is not None
        assert state.deadlines_from_us <= min(state.deadlines.values())
    assert set(state.answer_order.values()) == set(state.answers)
    assert len(state.answers) == state.answers_next - state.answers_first


def check_waits(world: World) -> None:
    state = world.state
    known = {*state.jobs, *state.arrays}
    assert {(one, other) for one, left in state.waits.items() for other in left} == {
        (one, other) for other, waiting in state.waited_for.items() for one in waiting
    }
    assert set(state.waits) <= known
    assert set(state.waited_for) <= known
    for array in state.arrays.values():
        tasks = [job for job in state.jobs.values() if job.array_id == array.array_id]
        assert array.left == len(tasks) > 0
    for job in state.jobs.values():
        assert ("after" in job.barriers) == bool(state.waits.get(job.array_id or job.job_id))
        assert job.attempt is None or not job.barriers


def check(world: World) -> None:
    check_nodes(world)
    check_jobs(world)
    check_waits(world)


@pytest.mark.parametrize("seed", range(4))
def test_no_gpu_is_given_twice_on_a_long_walk(seed: int) -> None:
    walk(World(), Lcg(seed), 1_000, after=check)


@SHRINKS
@SLOW
@given(st.data())
def test_no_gpu_is_given_twice_and_every_gang_is_whole(data: st.DataObject) -> None:
    walk(World(), picks(data), 40, after=check)


@pytest.mark.parametrize("seed", range(4))
def test_a_state_comes_back_from_its_bytes_and_gives_the_same_bytes_in_any_order(seed: int) -> None:
    pick = Lcg(seed)

    def comes_back(world: World) -> None:
        if pick(5):
            return
        data = to_bytes(world.state)
        again = from_bytes(data)
        assert again == replace(world.state, changed=None)
        assert to_bytes(again) == data
        assert to_bytes(shuffled(world.state, pick)) == data

    walk(World(), pick, 600, after=comes_back)


def test_rounds_do_not_depend_on_the_order_in_which_the_state_was_filled() -> None:
    pick = Lcg(9)

    def shuffle(world: World) -> None:
        world.state = shuffled(world.state, pick)

    one, other = World(), World()
    walk(one, Lcg(5), 600)
    walk(other, Lcg(5), 600, after=shuffle)
    assert one.control == other.control
    assert to_bytes(one.state) == to_bytes(other.state)


@SHRINKS
@SLOW
@given(st.data())
def test_the_log_alone_gives_the_state_at_every_round(data: st.DataObject) -> None:
    world = World(keep_states=True)
    walk(world, picks(data), 40)
    for index, state in replayed(world.control):
        assert to_bytes(state) == world.control[index].state


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_and_what_follows_give_what_the_whole_log_gives(seed: int) -> None:
    world = World(keep_states=True)
    walk(world, Lcg(seed), 400)
    whole = dict(replayed(world.control))
    assert len(whole) > 40
    for start, then in whole.items():
        snapshot = world.control[start].state
        assert snapshot is not None
        assert to_bytes(then) == snapshot
        for index, state in replayed(world.control, from_bytes(snapshot), start + 1):
            assert to_bytes(state) == world.control[index].state, f"from {start}, at {index}"


def test_rounds_that_were_cut_give_the_same_state_too() -> None:
    world = World(keep_states=True)
    world.node("n-1")
    jobs = [world.submit(env={"X": "x" * 200_000}) for _ in range(6)]
    world.tick()
    world.cancel(jobs[5])
    world.exits(jobs[0], 1)
    world.settle()
    rounds = dict(replayed(world.control))
    assert len(rounds) > 3
    for index, state in rounds.items():
        assert to_bytes(state) == world.control[index].state


@pytest.mark.parametrize("seed", range(4))
def test_whatever_came_nothing_is_due_at_once_for_ever_and_gangs_that_end_leave_nothing(seed: int) -> None:
    world = World()
    walk(world, Lcg(seed), 400)
    world.tick(1_000_000)  # commands are made by this world's clock, which the walk may have set back
    world.settle()
    for job_id in sorted(world.state.jobs):
        world.cancel(job_id)
    world.settle()
    for job_id in sorted(world.state.jobs, key=natural):
        world.gone(job_id)
    for node_id in world.state.node_order:
        gpus = world.state.nodes[node_id].gpus
        world.node(node_id, gpus, boot_id="last", agent_id="last", attempts=())
    world.settle()
    assert not world.state.jobs
    world.passes(200)
    world.settle()
    state = world.state
    assert not any((state.answers, state.ended, state.pending, state.deadlines, state.touched, state.commands))
    assert not any((state.arrays, state.finished, state.waits, state.waited_for, state.broken))
    assert [timer for timer in state.timers if not timer.startswith("quarantine ")] == []
    assert all(node.whole_free == len(node.gpus) and not node.held for node in state.nodes.values())
    assert next_due_us(state) is None or state.timers, "quarantines end, and nothing else is due"
