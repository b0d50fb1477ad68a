"""What could never start is refused, with the value, the limit and the way out; the rest is admitted."""

import re
from typing import Any

import pytest

from gangline.events.decisions import JobAdmitted, JobRejected, PolicyActivated, PolicyRefused
from gangline.events.policy import Policy, Queue
from gangline.events.types import Elastic, Role
from gangline.scheduler.rules.refusals import MAX_SHOWN_CHARACTERS
from tests.scheduler.world import GIB, World, the


def cluster() -> World:
    """Two H100 nodes of 8 and one of 4, and an A100 node of 8; 8 cores and 64 GiB a GPU."""
    world = World(Policy(queues=(Queue(path="default"), Queue(path="org"), Queue(path="org/vision"))))
    for node_id, gpus, gpu_type in (("n-1", 8, "H100"), ("n-2", 8, "H100"), ("n-3", 4, "H100"), ("n-4", 8, "A100")):
        pod = "pod-1" if node_id == "n-3" else "pod-0"
        world.node(node_id, gpus, gpu_type=gpu_type, pod=pod, cpu_milli=gpus * 8_000, memory_bytes=gpus * 64 * GIB)
    world.tick()
    return world


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a queue that there is not": ({"queue": "orgs"}, "queue", "'orgs'", "default, org, org/vision"),
    "less than no GPU": ({"gpus": -2}, "gpus", "-2", "has to be 0 or more"),
    "a GPU type for a job without GPUs": ({"gpus": 0, "gpu_types": ("H100",)}, "gpu_type", "H100", "no GPU"),
    "nodes for a job without GPUs": ({"gpus": 0, "nodes": 2}, "nodes", "2", "one rank"),
    "elastic bounds that contradict each other": (
        {"gpus": 4, "elastic": Elastic(min_gpus=8, max_gpus=4)},
        "elastic.min",
        "8",
        "above elastic.max, 4",
    ),
    "an elastic gang of no GPU": ({"gpus": 1, "elastic": Elastic(min_gpus=0, max_gpus=4)}, "elastic.min", "0", "1 GPU"),
    "an elastic gang that grows by nothing": (
        {"gpus": 1, "elastic": Elastic(min_gpus=1, max_gpus=4, step_gpus=0)},
        "elastic.step",
        "0",
        "at least 1",
    ),
    "an elastic gang that begins beyond its bounds": (
        {"gpus": 8, "elastic": Elastic(min_gpus=1, max_gpus=4)},
        "gpus",
        "8",
        "1 to 4 in steps of 1",
    ),
    "an elastic gang that begins between its steps": (
        {"gpus": 3, "elastic": Elastic(min_gpus=2, max_gpus=8, step_gpus=2)},
        "gpus",
        "3",
        "2 to 8 in steps of 2",
    ),
    "an elastic gang that never reaches its largest size": (
        {"gpus": 2, "elastic": Elastic(min_gpus=2, max_gpus=7, step_gpus=2)},
        "elastic.max",
        "7",
        "2 to 7 in steps of 2",
    ),
    "an elastic fraction": (
        {"gpu_milli": 500, "elastic": Elastic(min_gpus=1, max_gpus=2)},
        "gpus",
        "0.5",
        "whole GPUs",
    ),
    "an elastic gang on a number of nodes": (
        {"gpus": 4, "nodes": 2, "elastic": Elastic(min_gpus=2, max_gpus=8)},
        "nodes",
        "2",
        "wherever they are free",
    ),
    "an elastic gang that may not be stopped": (
        {"gpus": 4, "preemptible": False, "elastic": Elastic(min_gpus=2, max_gpus=8)},
        "preemptible",
        "false",
        "a resize stops",
    ),
    "an interactive gang": ({"gpus": 2, "interactive": True}, "gpus", "2", "at most one GPU"),
    "an idle time-out of nothing": ({"interactive": True, "idle_timeout_us": 0}, "idle_timeout", "0s", "more than 0"),
    "an idle time-out without interaction": (
        {"idle_timeout_us": 9},
        "idle_timeout",
        "0.000009s",
        "only an interactive",
    ),
    "an interactive job with actors": (
        {"interactive": True, "roles": (Role(name="actor", ranks=1),)},
        "roles",
        "given",
        "a single rank",
    ),
    "two roles of one name": (
        {"roles": (Role(name="actor", ranks=1), Role(name="actor", ranks=2))},
        "roles",
        "'actor'",
        "another role has this name",
    ),
    "a role named as the GPUs' own ranks": ({"roles": (Role(name="default", ranks=1),)}, "roles", "'default'", "own"),
    "a role without a name": ({"roles": (Role(name="", ranks=1),)}, "roles", "''", "1 to 64 letters"),
    "a role of nobody": ({"roles": (Role(name="actor", ranks=0),)}, "roles.actor.ranks", "0", "1 to 100000"),
    "a role of two GPUs a rank": (
        {"roles": (Role(name="actor", ranks=1, gpu_milli=2000),)},
        "roles.actor.gpus",
        "2",
        "at most one GPU",
    ),
    "a role of less than no CPU": (
        {"roles": (Role(name="actor", ranks=1, cpu_milli=-5),)},
        "roles.actor.cpus",
        "-0.005",
        "has to be 0 or more",
    ),
    "a role with an empty program": (
        {"roles": (Role(name="actor", ranks=1, command=("",)),)},
        "roles.actor.command",
        "no program",
        "has to name a program",
    ),
    "an elastic gang with actors": (
        {"roles": (Role(name="actor", ranks=1),), "elastic": Elastic(min_gpus=1, max_gpus=2)},
        "elastic",
        "given",
        "keeps its size",
    ),
    "a node for more GPUs than any has": (
        {"gpus": 16, "topology_required": "node"},
        "topology.required",
        "node",
        "the largest has 8 GPUs of one type, and it asks for 16",
    ),
    "a pod for more GPUs of one type than any has": (
        {"gpus": 20, "topology_required": "pod"},
        "topology.required",
        "pod",
        "the largest has 16 GPUs of one type, and it asks for 20",
    ),
    "actors for which there is never room beside the learners": (
        {"gpus": 8, "cpu_milli": 8_000, "roles": (Role(name="actor", ranks=21, cpu_milli=8_000),)},
        "roles",
        "21 x actor",
        "not these beside them",
    ),
    "an array of nothing": ({"array": 0}, "array", "0", "1 to 10000"),
    "an array beyond the policy's bound": ({"array": 10_001}, "array", "10001", "1 to 10000"),
    "a bound of an array that is none": ({"array_parallel": 2}, "array_parallel", "2", "no array"),
    "an array of which nothing may run": ({"array": 3, "array_parallel": 0}, "array_parallel", "0", "at least one"),
    "less than no data": ({"data_bytes": -1}, "data", "-1", "has to be 0 or more"),
    "too many to be told": ({"notify": ("https://example.org",) * 9}, "notify", "9 URLs", "at most 8"),
    "an empty URL": ({"notify": ("",)}, "notify", "0 characters", "1 to 2000"),
    "a job to wait for that there is not": ({"after": ("job-x",)}, "after", "job-x", "no such job"),
    "more jobs to wait for than the policy allows": (
        {"after": tuple(f"job-{number}" for number in range(101))},
        "after",
        "101 jobs",
        "after_max of the policy is 100",
    ),
    "an empty share": ({"gpu_milli": 0}, "gpus", "0", "0.001 to 1"),
    "a share of more than one GPU": ({"gpu_milli": 1001}, "gpus", "1.001", "0.001 to 1"),
    "shares of two GPUs": ({"gpus": 2, "gpu_milli": 500}, "gpus", "2", "only one GPU can be shared"),
    "nodes that do not divide the gang": ({"gpus": 8, "nodes": 3}, "nodes", "3", "spread evenly"),
    "no nodes": ({"gpus": 8, "nodes": 0}, "nodes", "0", "spread evenly"),
    "less than no CPU": ({"cpu_milli": -1}, "cpus", "-0.001", "has to be 0 or more"),
    "less than no memory": ({"memory_bytes": -1}, "memory", "-1", "has to be 0 or more"),
    "no name": ({"name": ""}, "name", "''", "1 to 128 characters"),
    "a very long name": ({"name": "x" * 129}, "name", "'xxx", "1 to 128 characters"),
    "no command": ({"command": ()}, "command", "empty", "has to name a program"),
    "an empty program": ({"command": ("", "x")}, "command", "empty", "has to name a program"),
    "a NUL in the command": ({"command": ("a\0b",)}, "command", "not text", "not have a NUL"),
    "a variable without a name": ({"env": {"": "x"}}, "env", "''", "a name"),
    "a variable with = in its name": ({"env": {"A=B": "x"}}, "env", "'A=B'", "without '='"),
    "a NUL in a variable": ({"env": {"A": "\0"}}, "env", "'A'", "no NUL"),
    "less than no retries": ({"retries": -1}, "retries", "-1", "0 to 1000"),
    "a priority out of bounds": ({"priority": 1_000_001}, "priority", "1000001", "-1000000 to 1000000"),
    "no runtime": ({"max_runtime_us": 0}, "max_runtime", "0s", "more than 0"),
    "a grace of a day": ({"grace_us": 86_400_000_000}, "grace", "1d", "has to be 0s to 1h"),
    "an unknown GPU type": ({"gpu_types": ("V100",)}, "gpu_type", "'V100'", "A100, H100"),
    "more GPUs than there are of one type": ({"gpus": 21}, "gpus", "21", "have 20 GPUs"),
    "more GPUs than there are of the type asked for": (
        {"gpus": 9, "gpu_types": ("A100",)},
        "gpus",
        "9",
        "have 8 GPUs of type A100",
    ),
    "more GPUs than whole nodes and a remainder give": ({"gpus": 18, "nodes": 2}, "gpus", "18 on 2 nodes", "8 GPUs"),
    "more CPU than a node has": ({"gpus": 8, "cpu_milli": 8_001}, "gpus", "8 with 8.001 CPUs", "64 CPUs"),
    "more memory than a node has": (
        {"gpus": 1, "memory_bytes": 513 * GIB},
        "gpus",
        "1 with 513GiB",
        "512GiB of memory",
    ),
    "a fraction with more CPU than a node has": (
        {"gpu_milli": 100, "cpu_milli": 64_001},
        "gpus",
        "0.1 with 64.001 CPUs",
        "64 CPUs",
    ),
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
    assert not re.match("it (?!has to |must not |is above )", refusal.limit), "it reads as if the value kept it"
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
    "a negative grace": (Policy(grace_us=-1), "grace is -0.000001s"),
    "answers not kept": (Policy(answers_kept_us=0), "answers_kept 0s"),
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


def test_a_gang_of_several_nodes_that_has_to_stay_within_one_was_admitted() -> None:
    world = World()
    world.node("n-1")
    world.node("n-2")
    world.submit(gpus=4, nodes=2, topology_required="node")
    refusal = the(JobRejected, world.tick())
    assert "on 2 nodes" in refusal.message
