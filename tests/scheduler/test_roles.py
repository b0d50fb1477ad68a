"""Roles: learners with GPUs and actors with CPUs start together or not at all, their ranks counted on."""

from gangline.events.decisions import AttemptStopOrdered, GangBound, JobEnded, JobRejected, JobRequeued
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import Role, Share
from tests.scheduler.world import World, all_of, the


def cluster(nodes: int = 2, *, cpu_milli: int = 16_000) -> World:
    world = World()
    for number in range(1, nodes + 1):
        world.node(f"n-{number}", 8, cpu_milli=cpu_milli, pod=f"pod-{number % 2}")
    return world


def actor(ranks: int, **changes: object) -> Role:
    fields: dict[str, object] = {"name": "actor", "ranks": ranks, "cpu_milli": 1_000} | changes
    return Role(**fields)  # type: ignore[arg-type] # the fields are those of Role


def of_role(world: World, job_id: str, role: str = "actor") -> list[Share]:
    return [share for share in world.attempt(job_id).bound.shares if share.role == role]


def test_actors_come_behind_the_learners_and_on_their_nodes_first() -> None:
    world = cluster()
    job_id = world.runs(gpus=8, cpu_milli=500, roles=(actor(20, command=("act",)),))
    bound = world.attempt(job_id).bound
    assert [(share.node_id, share.role, share.ranks) for share in bound.shares] == [
        ("n-1", "", range(8)),
        ("n-1", "actor", range(8, 20)),
        ("n-2", "actor", range(20, 28)),
    ]
    assert bound.world_size == 28
    assert [(role.name, role.command) for role in bound.roles] == [("actor", ("act",))]
    assert [share.cpu_milli for share in of_role(world, job_id)] == [12_000, 8_000]
    assert world.state.nodes["n-1"].cpu_free_milli == 0


def test_a_role_without_a_command_runs_the_jobs_own() -> None:
    world = cluster()
    bound = world.attempt(world.runs(command=("train",), roles=(actor(1),))).bound
    assert bound.roles[0].command == ("train",)


def test_a_gang_whose_actors_find_no_room_does_not_start_at_all() -> None:
    world = cluster()
    first = world.runs(gpus=1, cpu_milli=10_000)
    job_id = world.submit(gpus=8, roles=(actor(30),))
    world.tick()
    assert not world.is_running(job_id)
    assert world.free("n-2") == 8
    world.exits(first)
    world.tick()
    assert world.is_running(job_id)


def test_more_actors_than_the_cluster_could_ever_hold_are_refused() -> None:
    world = cluster()
    world.submit(roles=(actor(33),))
    assert the(JobRejected, world.tick()).key == "roles"


def test_a_role_may_take_parts_of_gpus() -> None:
    world = cluster(1)
    job_id = world.runs(gpus=6, roles=(actor(3, gpu_milli=500, cpu_milli=0),))
    shares = of_role(world, job_id)
    assert [(share.gpus, share.gpu_milli, share.ranks) for share in shares] == [
        ((6,), 500, range(6, 7)),
        ((6,), 500, range(7, 8)),
        ((7,), 500, range(8, 9)),
    ]
    assert world.state.nodes["n-1"].free_milli == (0, 0, 0, 0, 0, 0, 0, 500)


def test_whole_gpus_of_a_role_on_a_node_are_one_share() -> None:
    world = cluster(1)
    job_id = world.runs(gpus=4, roles=(actor(2, name="reward", gpu_milli=1000, cpu_milli=0),))
    (share,) = of_role(world, job_id, "reward")
    assert (share.gpus, share.ranks) == ((4, 5), range(4, 6))


def test_gpus_of_roles_count_against_the_ceiling() -> None:
    quota = (Quota(ceiling_milli=8_000),)
    world = World(Policy(queues=(Queue(path="default", quotas=quota),)))
    for number in range(1, 4):
        world.node(f"n-{number}", 8)
    waits = world.submit(gpus=8, roles=(actor(1, gpu_milli=1000),))
    fits = world.submit(gpus=7, roles=(actor(1, gpu_milli=1000),))
    world.tick()
    assert not world.is_running(waits)
    assert world.is_running(fits)


def test_actors_stay_in_the_pod_that_is_required_and_another_pod_is_tried() -> None:
    world = cluster(4)
    world.runs(gpus=1, cpu_milli=16_000)
    job_id = world.runs(gpus=8, topology_required="pod", roles=(actor(20),))
    pods = [world.state.nodes[share.node_id].pod for share in world.attempt(job_id).bound.shares]
    assert len(pods) == 3
    assert len(set(pods)) == 1


def test_actors_stay_on_the_node_that_is_required() -> None:
    world = cluster(3)
    world.runs(gpus=1, cpu_milli=8_000)
    world.runs(gpus=8)
    job_id = world.runs(gpus=2, topology_required="node", roles=(actor(12),))
    assert set(world.nodes_of(job_id)) == {"n-3"}


def test_everything_on_a_node_is_reported_gone_at_once_and_free_then() -> None:
    world = cluster(1)
    job_id = world.runs(gpus=4, cpu_milli=1_000, roles=(actor(4),))
    world.gone(job_id)
    decided = world.tick()
    assert the(JobRequeued, decided).cause == "ranks on node n-1 were lost"
    assert the(GangBound, decided).attempt == 2
    world.cancel(job_id)
    world.tick()
    world.gone(job_id)
    world.tick()
    node = world.state.nodes["n-1"]
    assert (node.whole_free, node.cpu_free_milli, node.held) == (8, 16_000, ())


def test_an_actor_that_fails_stops_the_whole_gang() -> None:
    world = cluster()
    job_id = world.runs(gpus=8, cpu_milli=1_000, roles=(actor(16),))
    assert len(set(world.nodes_of(job_id))) == 2
    world.exits(job_id, 3, rank=20, gone=False)
    assert the(AttemptStopOrdered, world.tick()).reason == "rank_failed"
    world.gone(job_id, "n-1")
    assert not all_of(JobRequeued, world.tick())
    world.gone(job_id, "n-2")
    assert the(JobRequeued, world.tick()).cause == "rank 20 on node n-2 exited with code 3"


def test_a_gang_has_succeeded_when_all_ranks_of_all_roles_have() -> None:
    world = cluster()
    job_id = world.runs(gpus=8, cpu_milli=1_000, roles=(actor(16),))
    world.exits(job_id, 0, gone=False)
    world.gone(job_id, "n-1")
    world.gone(job_id, "n-2")
    assert the(JobEnded, world.tick()).outcome == "succeeded"


def test_a_job_of_cpus_only_runs_as_one_rank_without_taking_a_gpu() -> None:
    world = cluster(1)
    job_id = world.runs(gpus=0, cpu_milli=4_000)
    (share,) = world.attempt(job_id).bound.shares
    assert (share.gpus, share.ranks, share.cpu_milli) == ((), range(1), 4_000)
    assert world.free("n-1") == 8
    world.exits(job_id)
    assert the(JobEnded, world.tick()).outcome == "succeeded"
    assert world.state.nodes["n-1"].cpu_free_milli == 16_000


def test_a_lost_node_keeps_what_every_role_had_there() -> None:
    world = cluster(3)
    job_id = world.runs(gpus=8, cpu_milli=1_000, roles=(actor(16),))
    lost, other = list(dict.fromkeys(world.nodes_of(job_id)))
    world.loses(lost)
    world.tick()
    world.gone(job_id, other)
    world.settle()
    assert world.attempt(job_id).bound.attempt == 2
    node = world.state.nodes[lost]
    assert (len(node.stale), node.whole_free, node.cpu_free_milli) == (2, 0, 0)
    world.node(lost, 8, cpu_milli=16_000, pod=node.pod, agent_id="another", attempts=())
    assert world.state.nodes[lost].cpu_free_milli == 16_000
