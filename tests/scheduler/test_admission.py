"""What could never start is refused, with the value, the limit and the way out; the rest is admitted."""

from typing import Any

import pytest

from gangline.events.decisions import JobAdmitted, JobRejected, PolicyActivated, PolicyRefused
from gangline.events.policy import Policy, Queue
from gangline.scheduler.rules.admission import MAX_SHOWN_CHARACTERS
from tests.scheduler.world import GIB, World, the


def cluster() -> World:
    """Two H100 nodes of 8 and one of 4, and an A100 node of 8; 8 cores and 64 GiB a GPU."""
    world = World(Policy(queues=(Queue(path="default"), Queue(path="org/vision"))))
    for node_id, gpus, gpu_type in (("n-1", 8, "H100"), ("n-2", 8, "H100"), ("n-3", 4, "H100"), ("n-4", 8, "A100")):
        world.node(node_id, gpus, gpu_type=gpu_type, cpu_milli=gpus * 8_000, memory_bytes=gpus * 64 * GIB)
    world.tick()
    return world


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a queue that there is not": ({"queue": "orgs"}, "queue", "'orgs'", "default, org/vision"),
    "no GPU": ({"gpus": 0}, "gpus", "0", "at least a part of one GPU"),
    "less than no GPU": ({"gpus": -2}, "gpus", "-2", "at least a part of one GPU"),
    "an empty share": ({"gpu_milli": 0}, "gpu_milli", "0", "1 to 1000"),
    "a share of more than one GPU": ({"gpu_milli": 1001}, "gpu_milli", "1001", "1 to 1000"),
    "shares of two GPUs": ({"gpus": 2, "gpu_milli": 500}, "gpus", "2", "only one GPU can be shared"),
    "nodes that do not divide the gang": ({"gpus": 8, "nodes": 3}, "nodes", "3", "spread evenly"),
    "no nodes": ({"gpus": 8, "nodes": 0}, "nodes", "0", "spread evenly"),
    "less than no CPU": ({"cpu_milli": -1}, "cpus", "-1 thousandths", "not negative"),
    "less than no memory": ({"memory_bytes": -1}, "memory", "-1", "not negative"),
    "no name": ({"name": ""}, "name", "''", "1 to 128 characters"),
    "a very long name": ({"name": "x" * 129}, "name", "'xxx", "1 to 128 characters"),
    "no command": ({"command": ()}, "command", "empty", "names a program"),
    "an empty program": ({"command": ("", "x")}, "command", "empty", "names a program"),
    "a NUL in the command": ({"command": ("a\0b",)}, "command", "not text", "no NUL"),
    "a variable without a name": ({"env": {"": "x"}}, "env", "''", "a name"),
    "a variable with = in its name": ({"env": {"A=B": "x"}}, "env", "'A=B'", "without '='"),
    "a NUL in a variable": ({"env": {"A": "\0"}}, "env", "'A'", "no NUL"),
    "less than no retries": ({"retries": -1}, "retries", "-1", "0 to 1000"),
    "a priority out of bounds": ({"priority": 1_000_001}, "priority", "1000001", "-1000000 to 1000000"),
    "no runtime": ({"max_runtime_us": 0}, "max_runtime", "0 us", "more than 0"),
    "a grace of a day": ({"grace_us": 86_400_000_000}, "grace", "86400000000 us", "0 to 1 hour"),
    "an unknown GPU type": ({"gpu_types": ("V100",)}, "gpu_type", "'V100'", "A100, H100"),
    "more GPUs than there are of one type": ({"gpus": 21}, "gpus", "21", "have 20 GPUs"),
    "more GPUs than there are of the type asked for": (
        {"gpus": 9, "gpu_types": ("A100",)},
        "gpus",
        "9",
        "have 8 GPUs of type A100",
    ),
    "more GPUs than whole nodes and a remainder give": ({"gpus": 18, "nodes": 2}, "gpus", "18 on 2 nodes", "8 GPUs"),
    "more CPU than a node has": ({"gpus": 8, "cpu_milli": 8_001}, "gpus", "8 with 8001m CPU", "64000m CPU"),
    "more memory than a node has": (
        {"gpus": 1, "memory_bytes": 513 * GIB},
        "gpus",
        "1 with 550,829,555,712 bytes",
        "549,755,813,888 bytes",
    ),
    "a fraction with more CPU than a node has": ({"gpu_milli": 100, "cpu_milli": 64_001}, "gpus", "1", "64000m CPU"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses(name: str) -> None:
    changes, key, value, limit = REFUSED[name]
    world = cluster()
    job_id = world.submit(**changes)
    refusal = the(JobRejected, world.tick())
    assert refusal.key == key
    assert value in refusal.value
    assert limit in refusal.limit
    assert refusal.value in refusal.message
    assert refusal.limit in refusal.message
    assert refusal.message.count(": ") >= 1, "it names no way out"
    assert job_id not in world.state.jobs


ADMITTED: dict[str, dict[str, Any]] = {
    "a tenth of a GPU": {"gpu_milli": 100},
    "a whole node": {"gpus": 8},
    "every GPU of a type, with a remainder": {"gpus": 20},
    "two nodes in halves": {"gpus": 8, "nodes": 2},
    "three nodes in parts that the smallest holds": {"gpus": 12, "nodes": 3},
    "one of several types": {"gpus": 8, "gpu_types": ("A100", "H100")},
    "all of a node's CPU and memory": {"gpus": 8, "cpu_milli": 8_000, "memory_bytes": 64 * GIB},
    "a queue below others": {"queue": "org/vision"},
    "the name's limit": {"name": "x" * 128},
    "no retries": {"retries": 0},
}


@pytest.mark.parametrize("name", ADMITTED)
def test_it_admits_and_starts(name: str) -> None:
    world = cluster()
    job_id = world.submit(**ADMITTED[name])
    assert the(JobAdmitted, world.tick()).job_id == job_id
    assert world.is_running(job_id)


def test_what_is_admitted_while_the_cluster_is_busy_waits() -> None:
    world = cluster()
    world.runs(gpus=20)
    job_id = world.submit(gpus=8, gpu_types=("H100",))
    assert the(JobAdmitted, world.tick()).job_id == job_id
    assert not world.is_running(job_id)


def test_before_any_node_has_registered_only_what_no_cluster_gives_is_refused() -> None:
    world = World()
    waits, never = world.submit(gpus=4096), world.submit(gpus=-1)
    world.tick()
    assert waits in world.state.pending
    assert never not in world.state.jobs


def test_a_refusal_repeats_only_the_beginning_of_a_huge_value() -> None:
    world = cluster()
    world.submit(queue="\x01" * 200_000)
    refusal = the(JobRejected, world.tick())
    assert len(refusal.value) <= MAX_SHOWN_CHARACTERS + 3
    assert len(refusal.message) < 1_000


def test_without_a_policy_jobs_wait_for_their_answer() -> None:
    world = World(policy=None)
    world.node("n-1")
    job_id = world.submit()
    assert world.tick() == []
    world.activate(Policy())
    the(PolicyActivated, world.tick(0))
    assert the(JobAdmitted, world.settle()).job_id == job_id
    assert world.is_running(job_id)


BAD_POLICIES: dict[str, tuple[Policy, str]] = {
    "no queue": (Policy(queues=()), "at least one queue"),
    "an empty path": (Policy(queues=(Queue(path=""),)), "''"),
    "an empty part of a path": (Policy(queues=(Queue(path="a//b"),)), "'a//b'"),
    "a queue twice": (Policy(queues=(Queue(path="a"), Queue(path="b"), Queue(path="a"))), "'a' appears more than once"),
    "negative retries": (Policy(retries=-1), "retries is -1"),
    "a negative grace": (Policy(grace_us=-1), "grace_us is -1"),
    "answers not kept": (Policy(answers_kept_us=0), "answers_kept_us 0"),
    "answers kept less long than commands may be ahead": (Policy(answers_kept_us=60_000_000), "the second the longer"),
    "no ports": (Policy(port_count=0), "ports"),
    "ports of the system": (Policy(port_first=80), "1024 to 65535"),
    "ports beyond the last": (Policy(port_first=60_000, port_count=10_000), "1024 to 65535"),
    "no checkpoints": (Policy(checkpoints_kept=0), "checkpoints_kept is 0"),
}


@pytest.mark.parametrize("name", BAD_POLICIES)
def test_it_refuses_a_policy_with(name: str) -> None:
    policy, text = BAD_POLICIES[name]
    world = World()
    world.activate(policy)
    refusal = the(PolicyRefused, world.tick())
    assert text in refusal.message
    assert ": " in refusal.message, "it names no way out"
    assert world.state.policy == Policy()


def test_a_policy_is_effective_from_the_next_tick_which_is_due_at_once() -> None:
    world = World()
    world.node("n-1")
    world.activate(Policy(queues=(Queue(path="default"), Queue(path="new"))))
    early = world.submit(queue="new")
    assert the(JobRejected, world.tick()).key == "queue"
    late = world.submit(queue="new")
    world.settle()
    assert early not in world.state.jobs
    assert world.is_running(late)
