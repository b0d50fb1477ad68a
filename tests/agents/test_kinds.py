"""Gangs that are more than GPUs: roles, jobs without GPUs, arrays, interactive jobs, and the end that is announced."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gangline.agents.idle import Sample, is_busy
from gangline.events.control import CheckpointUploaded, CheckpointUploadStarted, JobIdled, NodeRegistered
from gangline.events.decisions import GangBound, RuntimeWarned
from gangline.events.types import AttemptRef, RoleLaunch
from gangline.schemas.launch import Ending, read_ending
from tests.agents.node import META, NODE, Node, ended, gang, share, stop, wait_for
from tests.agents.test_checkpoints import SAVE

DUMP = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
ACTOR = "print('actor', flush=True); " + DUMP
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.02)"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as started:
        yield started


def dumped(node: Node, bound: GangBound, rank: int) -> dict[str, str]:
    text = node.wait_output(bound, "}", rank=rank)
    found: dict[str, str] = json.loads(text[text.index("{") :])
    return found


# --- roles ---


def test_learners_and_actors_of_a_gang_get_their_own_commands_ranks_and_roles(node: Node) -> None:
    shares = (
        share(NODE, (0, 1), 0),
        share("node-0", (), 2, role="actor", rank_count=4),
        share(NODE, (), 6, role="actor", rank_count=3),
    )
    bound = replace(
        gang("python", "-c", DUMP, shares=shares),
        roles=(RoleLaunch(name="actor", command=("python", "-c", ACTOR)),),
    )
    node.start_agent()
    node.decide(bound)
    assert node.wait_gone(bound) == {0: 0, 1: 0, 6: 0, 7: 0, 8: 0}
    learner, actor = dumped(node, bound, 1), dumped(node, bound, 7)
    names = (
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"),
    )
    assert [learner[name] for name in names] == ["1", "1", "9", "2", "0", "3", "default", "1", "2"]
    assert [actor[name] for name in names] == ["7", "1", "9", "3", "2", "3", "actor", "5", "7"]
    assert actor["CUDA_VISIBLE_DEVICES"] == ""
    assert actor["MASTER_PORT"] == learner["MASTER_PORT"]
    assert node.wait_output(bound, "actor", rank=8).startswith("actor")
    assert not node.wait_output(bound, "}", rank=0).startswith("actor")


def test_a_failed_actor_is_reported_with_its_rank_in_the_gang(node: Node) -> None:
    shares = (share(NODE, (0,), 0), share(NODE, (), 1, role="actor", rank_count=2))
    command = ("python", "-c", "import os, sys; sys.exit(int(os.environ['ROLE_RANK']) + 5)")
    bound = replace(gang("true", shares=shares), roles=(RoleLaunch(name="actor", command=command),))
    node.start_agent()
    node.decide(bound)
    assert node.wait_gone(bound) == {0: 0, 1: 5, 2: 6}


def test_a_stop_reaches_every_role_of_a_gang(node: Node) -> None:
    shares = (share(NODE, (0,), 0), share(NODE, (), 1, role="actor", rank_count=2))
    bound = replace(
        gang("python", "-c", FOREVER, shares=shares),
        roles=(RoleLaunch(name="actor", command=("python", "-c", FOREVER)),),
    )
    node.start_agent()
    node.decide(bound)
    for rank in range(3):
        node.wait_output(bound, "up", rank=rank)
    node.decide(stop(bound, grace_s=20))
    assert node.wait_gone(bound) == {0: -15, 1: -15, 2: -15}


def test_a_job_without_gpus_runs_as_one_rank(node: Node) -> None:
    bound = gang("python", "-c", DUMP, shares=(share(NODE, (), 0, rank_count=1),))
    node.start_agent()
    node.decide(bound)
    assert node.wait_gone(bound) == {0: 0}
    got = dumped(node, bound, 0)
    assert (got["RANK"], got["WORLD_SIZE"], got["CUDA_VISIBLE_DEVICES"]) == ("0", "1", "")


# --- arrays ---


def test_a_job_of_an_array_knows_its_index_and_others_have_none(node: Node) -> None:
    one = replace(gang("python", "-c", DUMP, job_id="job-a.7", port=29_998), array_index=7)
    other = gang("python", "-c", DUMP, job_id="job-b")
    node.start_agent()
    node.decide(one, other)
    assert node.wait_gone(one) == node.wait_gone(other) == {0: 0}
    got = dumped(node, one, 0)
    assert (got["GANGLINE_ARRAY_INDEX"], got["GANGLINE_JOB_ID"]) == ("7", "job-a.7")
    assert "GANGLINE_ARRAY_INDEX" not in dumped(node, other, 0)


def test_a_killed_agent_adopts_a_job_of_an_array(node: Node) -> None:
    bound = replace(gang("python", "-c", FOREVER, job_id="job-a.7"), array_index=7)
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "up")
    node.kill_agent()
    node.start_agent()
    node.decide(stop(bound, grace_s=20))
    assert node.wait_gone(bound) == {0: -15}


# --- interactive ---


def test_a_job_that_does_nothing_for_its_time_out_is_reported_idle(node: Node) -> None:
    bound = replace(gang("python", "-c", "import time\nwhile True: time.sleep(60)"), idle_timeout_us=1_000_000)
    node.start_agent()
    node.decide(bound)
    assert node.wait_fact(JobIdled, bound).idle_us >= 1_000_000
    node.decide(stop(bound, grace_s=20))
    node.wait_gone(bound)


def test_a_job_at_work_is_not_idle_until_it_rests(node: Node) -> None:
    source = (
        "import os, time\nbegan = time.monotonic()\n"
        "while not os.path.exists('rest'):\n"
        "    if time.monotonic() - began > 3: print('worked', flush=True); began += 1000\n"
        "while True: time.sleep(60)"
    )
    bound = replace(gang("python", "-c", source), idle_timeout_us=1_000_000)
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "worked")
    assert not node.facts(JobIdled, bound)
    (node.folder_of(bound).work / "rest").touch()
    node.wait_fact(JobIdled, bound)
    node.decide(stop(bound, grace_s=20))
    node.wait_gone(bound)


def test_work_in_a_child_of_the_rank_counts(node: Node) -> None:
    spin = "import time; began = time.monotonic()\nwhile time.monotonic() - began < 3: pass"
    source = (
        f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {spin!r}])\nprint('worked', flush=True)"
    )
    bound = replace(gang("python", "-c", f"{source}\ntime.sleep(1000)"), idle_timeout_us=1_000_000)
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "worked")
    assert not node.facts(JobIdled, bound)
    node.decide(stop(bound, grace_s=20))
    node.wait_gone(bound)


def test_a_job_without_a_time_out_may_rest(node: Node) -> None:
    resting = gang("python", "-c", FOREVER, job_id="job-b", port=29_998)
    watched = replace(gang("python", "-c", FOREVER), idle_timeout_us=500_000)
    node.start_agent()
    node.decide(resting, watched)
    node.wait_fact(JobIdled, watched)
    assert not node.facts(JobIdled, resting)
    node.decide(stop(resting, grace_s=20), stop(watched, grace_s=20))
    node.wait_gone(resting)
    node.wait_gone(watched)


def test_an_adopted_job_is_watched_on(node: Node) -> None:
    bound = replace(gang("python", "-c", FOREVER), idle_timeout_us=1_000_000)
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "up")
    node.kill_agent()
    before = len(node.facts(JobIdled, bound))
    node.start_agent()
    node.wait_fact(JobIdled, bound, count=before + 1)
    node.decide(stop(bound, grace_s=20))
    node.wait_gone(bound)


@pytest.mark.parametrize(
    ("cpu_s", "gpu_busy", "busy"),
    [
        (0.0, None, False),
        (0.1, None, False),
        (0.2, None, True),
        (10.0, None, True),
        (10.0, False, False),
        (0.0, True, True),
        (-1.0, None, True),
    ],
)
def test_gpus_tell_whether_there_is_work_and_the_cpu_where_they_cannot(
    *, cpu_s: float, gpu_busy: bool | None, busy: bool
) -> None:
    before = Sample(at_s=100.0, cpu_s=50.0, gpu_busy=None)
    assert is_busy(before, Sample(at_s=110.0, cpu_s=50.0 + cpu_s, gpu_busy=gpu_busy)) is busy


# --- the end that is announced ---


def test_ranks_find_out_when_they_will_be_stopped(node: Node) -> None:
    source = (
        "import json, os, time\npath = os.environ['GANGLINE_ENDING_FILE']\nprint('up', flush=True)\n"
        "while not os.path.exists(path): time.sleep(0.02)\nprint(open(path).read(), flush=True)"
    )
    bound = gang("python", "-c", source)
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "up")
    path = node.folder_of(bound).ending
    assert read_ending(path) is None, "it has not been warned"
    node.decide(RuntimeWarned(job_id=bound.job_id, attempt=1, ends_at_us=5, left_us=600_000_000))
    ends_at_us = META.at_us + 600_000_000
    assert json.loads(node.wait_output(bound, "}")[3:]) == {"reason": "max_runtime", "ends_at_us": ends_at_us}
    assert read_ending(path) == Ending(reason="max_runtime", ends_at_us=ends_at_us)
    assert node.wait_gone(bound) == {0: 0}


# --- what an agent says of itself ---


def test_an_agent_lists_what_it_adopts_and_nothing_that_is_gone(node: Node) -> None:
    here, gone = gang("python", "-c", FOREVER), gang("true", job_id="job-b", port=29_998)
    node.start_agent()
    assert node.wait_fact(NodeRegistered).attempts == ()
    node.decide(here, gone)
    node.wait_output(here, "up")
    node.wait_gone(gone)
    wait_for(lambda: node.folder_of(gone).reported, "note that the log has it")
    node.decide(ended(gone))
    node.kill_agent()
    node.start_agent()
    registered = node.wait_fact(NodeRegistered, count=2)
    assert registered.attempts_listed
    assert registered.attempts == (AttemptRef(job_id="job-a", attempt=1),)
    node.decide(stop(here, grace_s=20))
    node.wait_gone(here)


def test_an_agent_lists_what_ended_without_it_until_it_is_gone(node: Node) -> None:
    """As after a lost node: the attempt has ended for everyone else, and its ranks still run here."""
    bound = gang("python", "-c", FOREVER)
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "up")
    node.kill_agent()
    node.decide(ended(bound))
    node.start_agent()
    assert node.wait_fact(NodeRegistered, count=2).attempts == (AttemptRef(job_id="job-a", attempt=1),)
    assert node.wait_gone(bound) in ({0: -9}, {0: -15})


def test_an_agent_without_its_folders_lists_what_it_is_about_to_launch(node: Node) -> None:
    bound = gang("true")
    node.decide(bound)
    node.start_agent()
    assert node.wait_fact(NodeRegistered).attempts == (AttemptRef(job_id="job-a", attempt=1),)
    node.wait_gone(bound)


def test_a_checkpoint_is_announced_before_it_is_verified_and_stored(node: Node) -> None:
    bound = gang("python", "-c", f"{SAVE}\nsave(1); save(2)")
    node.start_agent()
    node.decide(bound)
    node.wait_gone(bound)
    said = [event for event in node.events() if isinstance(event, CheckpointUploadStarted | CheckpointUploaded)]
    steps = [event.step if isinstance(event, CheckpointUploadStarted) else event.checkpoint.step for event in said]
    assert [type(event) for event in said] == [CheckpointUploadStarted, CheckpointUploaded] * (len(said) // 2)
    assert steps == sorted(steps)
    assert steps[0] == steps[1]
