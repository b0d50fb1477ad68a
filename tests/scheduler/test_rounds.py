"""Rounds: cut at their size and continued without loss, bad inputs quarantined, wrong histories refused."""

import pytest
from msgspec.structs import replace

from gangline.events import codec
from gangline.events.control import Heartbeat, NodeRegistered, RanksExited
from gangline.events.decisions import GangBound, InputQuarantined, JobAdmitted, RoundDecided
from gangline.events.log import MAX_RECORD_BYTES
from gangline.events.types import Gpu, RankExit
from gangline.scheduler import evolve
from gangline.scheduler.errors import Halted
from gangline.scheduler.round import MAX_ROUND_BYTES
from gangline.scheduler.rules import quarantine
from tests.scheduler.world import World, all_of, the


def rounds(world: World) -> list[RoundDecided]:
    found = [codec.decode(record.round) for record in world.control if record.round is not None]
    return [one for one in found if isinstance(one, RoundDecided)]


def test_a_round_over_the_size_is_cut_and_continued_in_order() -> None:
    world = World()
    for number in range(40):
        world.node(f"n-{number}")
    jobs = [world.submit(env={"X": "x" * 10_000}) for _ in range(200)]
    decided = world.settle()
    assert [one.job_id for one in all_of(JobAdmitted, decided)] == jobs
    assert [one.job_id for one in all_of(GangBound, decided)] == jobs
    written = rounds(world)[1:]
    assert [one.more for one in written] == [True] * (len(written) - 1) + [False]
    assert len(written) == 5
    for one in written:
        assert sum(map(len, one.decisions)) <= MAX_ROUND_BYTES
    assert world.settle() == []


def test_a_cut_round_is_due_at_once_and_goes_on_without_new_inputs() -> None:
    world = World()
    world.node("n-1")
    first, second = (world.submit(env={"X": "x" * 200_000}) for _ in range(2))
    third = world.submit(env={"X": "x" * 200_000})
    bound = [one.job_id for one in all_of(GangBound, world.tick())]
    assert bound == [first, second]
    assert world.state.more
    assert [one.job_id for one in all_of(GangBound, world.tick(0))] == [third]
    assert not world.state.more


def test_inputs_between_the_parts_of_a_cut_round_lose_nothing() -> None:
    world = World()
    world.node("n-1")
    jobs = [world.submit(env={"X": "x" * 200_000}) for _ in range(5)]
    world.tick()
    world.cancel(jobs[4])
    world.exits(jobs[0])
    world.settle()
    assert sorted(world.state.jobs) == sorted(jobs[1:4])
    assert all(world.is_running(job_id) for job_id in jobs[1:4])


def test_the_largest_binding_stays_within_a_record() -> None:
    world = World()
    for number in range(1_024):
        world.node(f"n-{number}".ljust(100, "x"), 1)
    world.submit(gpus=1_024, env={"X": "x" * 250_000})
    the(GangBound, world.settle())
    assert max(len(record.round or b"") for record in world.control) < MAX_RECORD_BYTES


def test_bytes_that_do_not_decode_are_quarantined_once() -> None:
    world = World()
    header = codec.encode(Heartbeat(meta=world.meta(), node_id="n", boot_id="b", agent_id="a", sequence=0))[:10]
    index = world.append_bytes(header + b"\xff")
    quarantined = the(InputQuarantined, world.tick())
    assert quarantined.control_index == index
    assert world.tick() == []


def test_what_does_not_belong_on_control_is_quarantined() -> None:
    world = World()
    world.append(Heartbeat(meta=world.meta(), node_id="n", boot_id="b", agent_id="a", sequence=0))
    assert "Heartbeat does not belong on control" in the(InputQuarantined, world.tick()).reason


def test_a_rank_that_is_not_of_that_node_is_quarantined() -> None:
    world = World()
    world.node("n-1")
    job_id = world.runs()
    before = world.state.jobs
    exits = (RankExit(rank=1, exit_code=0),)
    world.append(RanksExited(meta=world.meta(), job_id=job_id, attempt=1, node_id="n-1", exits=exits, gone=True))
    the(InputQuarantined, world.tick())
    assert world.state.jobs == before


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": (Gpu(index=0), Gpu(index=0))},
        {"gpus": (Gpu(index=-1),)},
        {"cpu_milli": -1},
        {"memory_bytes": -1},
        {"node_id": ""},
        {"node_id": "1" * 5_000},
    ],
)
def test_a_node_that_cannot_be_is_quarantined(changes: dict[str, object]) -> None:
    world = World()
    event = NodeRegistered(
        meta=world.meta(),
        node_id="n-1",
        boot_id="b",
        agent_id="a",
        address="n-1",
        pod="p",
        gpu_type="t",
        gpus=(Gpu(index=0),),
        cpu_milli=1,
        memory_bytes=1,
    )
    world.append(replace(event, **changes))
    the(InputQuarantined, world.tick())
    assert not world.state.nodes


def test_as_many_bad_inputs_as_a_round_may_name_stay_within_a_record() -> None:
    world = World()
    state = world.state
    for number in range(quarantine.MAX_PER_ROUND):
        state = evolve.fail(state, len(world.control) + number, "\u2028" * 400)
    world.state = state
    world.control += [world.control[0]] * quarantine.MAX_PER_ROUND
    assert len(all_of(InputQuarantined, world.tick())) == quarantine.MAX_PER_ROUND
    assert len(world.control[-1].round or b"") < MAX_RECORD_BYTES


def test_more_bad_inputs_than_a_round_may_name_halt() -> None:
    world = World()
    state = world.state
    for number in range(quarantine.MAX_PER_ROUND + 1):
        state = evolve.fail(state, len(world.control) + number, "x")
    world.state = state
    world.control += [world.control[0]] * (quarantine.MAX_PER_ROUND + 1)
    with pytest.raises(Halted, match="find who writes them"):
        world.tick()


def test_facts_about_what_is_not_known_change_nothing() -> None:
    world = World()
    world.node("n-1")
    job_id = world.runs()
    world.tick()
    before = (world.state.jobs, world.state.nodes, world.state.pending)
    for job, attempt, node in (("job-unknown", 1, "n-1"), (job_id, 2, "n-1"), (job_id, 0, "n-1"), (job_id, 1, "n-9")):
        world.append(RanksExited(meta=world.meta(), job_id=job, attempt=attempt, node_id=node, exits=(), gone=True))
    assert world.tick() == []
    assert (world.state.jobs, world.state.nodes, world.state.pending) == before


def test_a_round_that_does_not_follow_on_its_tick_halts() -> None:
    world = World()
    world.submit()
    world.tick()
    record = rounds(world)[-1]
    for other in (replace(record, tick_event_id=b"x" * 16), replace(record, tick_index=record.tick_index - 1)):
        with pytest.raises(Halted, match="the log was replaced"):
            evolve.evolve_round(world.state, other, [])


def test_a_round_that_answers_what_nobody_asked_halts() -> None:
    world = World()
    answer = JobAdmitted(command_id=b"c" * 16, control_index=0, job_id="job-x")
    with pytest.raises(Halted, match="do not belong together"):
        evolve.apply_decision(world.state, answer)
