"""What dies, and what must not: agents, shims and ranks are killed while jobs run."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gangline.agents import processes, shim
from gangline.events.control import LaunchFailed, NodeRegistered, RanksExited, RanksStarted
from gangline.events.decisions import GangBound
from tests.agents.node import NODE, Node, alive, ended, gang, stop, wait_for

UNTIL_GO = "print('up', os.getpid(), flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
JOB = f"import os, sys, time\n{UNTIL_GO}sys.exit(5)"
WITH_DAEMON = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    print('daemon', os.getpid(), flush=True)
    while True: time.sleep(0.02)
{UNTIL_GO}
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as started:
        yield started


def run(node: Node, source: str = JOB, *, ranks: int = 1, job_id: str = "job-a") -> GangBound:
    """Start the agent and a job, and wait until its ranks are in their first line."""
    bound = gang("python", "-c", source, ranks=ranks, job_id=job_id)
    if node.agent is None:
        node.start_agent()
    node.decide(bound)
    for rank in range(ranks):
        node.wait_output(bound, "up", rank=rank)
    return bound


def shim_pid(node: Node, bound: GangBound) -> int:
    path = node.folder_of(bound).path / shim.RECORDS_FILE
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n"), "record of the start")
    return int(msgspec.json.decode(path.read_bytes().splitlines()[0])["pid"])


def pids(output: str) -> list[int]:
    return [int(line.split()[1]) for line in output.splitlines()]


def go(node: Node, bound: GangBound) -> None:
    (node.folder_of(bound).work / "go").touch()


def test_a_killed_agent_hurts_no_job_and_its_successor_reports_the_end(node: Node) -> None:
    bound = run(node, ranks=2)
    node.wait_fact(RanksStarted, bound)
    node.kill_agent()
    before = pids(node.wait_output(bound, "up"))
    node.start_agent()
    node.wait_fact(NodeRegistered, count=2)
    assert all(alive(pid) for pid in before)
    go(node, bound)
    assert node.wait_gone(bound) == {0: 5, 1: 5}
    assert pids(node.wait_output(bound, "up")) == before, "it was launched twice"


def test_what_ended_while_no_agent_ran_is_reported_by_the_next_one(node: Node) -> None:
    bound = run(node)
    node.wait_fact(RanksStarted, bound)
    node.kill_agent()
    go(node, bound)
    wait_for(lambda: not node.folder_of(bound).shim_lives(), "end of the shim")
    assert not node.facts(RanksExited, bound)
    node.start_agent()
    assert node.wait_gone(bound) == {0: 5}


def test_a_job_is_stopped_by_the_agent_that_adopted_it(node: Node) -> None:
    bound = run(node)
    node.kill_agent()
    node.decide(stop(bound, grace_s=20))
    node.start_agent()
    assert node.wait_gone(bound) == {0: -signal.SIGTERM}


def test_an_attempt_that_was_reported_is_neither_launched_nor_reported_again(node: Node) -> None:
    bound = run(node)
    go(node, bound)
    node.wait_gone(bound)
    wait_for(lambda: node.folder_of(bound).reported, "mark of the report")
    node.kill_agent()
    node.start_agent()
    node.wait_fact(NodeRegistered, count=2)
    other = run(node, job_id="job-b")
    go(node, other)
    node.wait_gone(other)
    assert node.wait_output(bound, "up").count("up") == 1
    assert sum(event.gone for event in node.facts(RanksExited, bound)) == 1
    node.decide(ended(bound))


def test_sigterm_ends_the_agent_and_not_the_job(node: Node) -> None:
    bound = run(node)
    assert node.agent is not None
    node.agent.terminate()
    assert node.agent.wait(20) == 0
    assert alive(pids(node.wait_output(bound, "up"))[0])
    node.start_agent()
    go(node, bound)
    assert node.wait_gone(bound) == {0: 5}


def test_a_signal_to_the_terminals_processes_does_not_reach_shims_and_ranks(node: Node) -> None:
    bound = run(node)
    rank = pids(node.wait_output(bound, "up"))[0]
    assert len({os.getsid(0), os.getsid(rank), os.getsid(shim_pid(node, bound))}) == 3
    go(node, bound)
    node.wait_gone(bound)


def test_a_killed_shim_takes_its_ranks_along_and_what_they_left_is_swept(node: Node) -> None:
    bound = run(node, WITH_DAEMON, ranks=2)
    started = [pid for rank in (0, 1) for pid in pids(node.wait_output(bound, "daemon", rank=rank))]
    os.kill(shim_pid(node, bound), signal.SIGKILL)
    assert node.wait_gone(bound) == {0: -signal.SIGKILL, 1: -signal.SIGKILL}
    assert not any(alive(pid) for pid in started)


def test_agent_and_shim_killed_together_leave_nothing_once_an_agent_is_back(node: Node) -> None:
    bound = run(node, WITH_DAEMON)
    left = pids(node.wait_output(bound, "daemon"))
    killed = shim_pid(node, bound)
    node.kill_agent()
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not node.folder_of(bound).shim_lives(), "end of the shim")
    foreign = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        node.start_agent()
        assert node.wait_gone(bound) == {0: -signal.SIGKILL}
        assert not any(alive(pid) for pid in left)
        assert foreign.poll() is None, "a process that is not the job's was killed"
    finally:
        foreign.kill()
        foreign.wait()


def test_processes_of_another_attempt_survive_the_sweep_of_one(node: Node) -> None:
    victim, neighbour = run(node, job_id="job-a"), run(node, job_id="job-b")
    os.kill(shim_pid(node, victim), signal.SIGKILL)
    assert node.wait_gone(victim) == {0: -signal.SIGKILL}
    assert alive(pids(node.wait_output(neighbour, "up"))[0])
    go(node, neighbour)
    assert node.wait_gone(neighbour) == {0: 5}


def test_a_shim_that_never_began_is_a_failed_launch(node: Node) -> None:
    bound = gang("true")
    folder = node.folder_of(bound)
    folder.make_afresh()
    folder.work.mkdir()
    (folder.path / shim.PLAN_FILE).write_bytes(PLAN)
    (folder.path / "shim.err").write_text("Killed")
    node.decide(bound)
    node.start_agent()
    failed = node.wait_fact(LaunchFailed, bound)
    assert (failed.retryable, failed.blame) == (True, "node")
    assert "the shim ended before it had started the ranks: Killed" in failed.reason


def test_an_interrupted_preparation_is_begun_again(node: Node) -> None:
    bound = gang("python", "-c", "import os; print(os.listdir())")
    folder = node.folder_of(bound)
    folder.make_afresh()
    folder.work.mkdir()
    (folder.work / "half.py").touch()
    node.decide(bound)
    node.start_agent()
    assert node.wait_gone(bound) == {0: 0}
    assert node.wait_output(bound, "\n") == "[]\n"


def test_a_share_whose_attempt_has_ended_elsewhere_is_stopped_at_once(node: Node) -> None:
    bound = run(node)
    node.decide(ended(bound))
    assert node.wait_gone(bound)[0] in {-signal.SIGKILL, -signal.SIGTERM}


def test_a_stop_given_to_the_shim_itself_as_at_shutdown_gives_ranks_their_grace(node: Node) -> None:
    bound = run(node, f"import os, signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(9))\n{UNTIL_GO}")
    os.kill(shim_pid(node, bound), signal.SIGTERM)
    assert node.wait_gone(bound) == {0: 9}


def test_an_agent_of_another_log_is_refused(node: Node, tmp_path: Path) -> None:
    node.start_agent()
    node.wait_fact(NodeRegistered)
    wait_for((node.home / "agents" / NODE / "log_id").exists, "identity of the log")
    node.kill_agent()
    (tmp_path / "other").mkdir()
    with Node(tmp_path / "other") as other:
        other.home = node.home
        assert other.start_agent().wait(20) == 1
        assert f"is the folder of an agent of log {node.log_id}" in other.stderr.read_text()
        other.agent = None


def test_a_process_is_found_by_its_token_only() -> None:
    token = "0" * 32
    marked = subprocess.Popen(["sleep", "600"], env={processes.TOKEN: token})
    almost = subprocess.Popen(["sleep", "600"], env={processes.TOKEN: token + "1", "X": token})
    try:
        wait_for(lambda: marked.pid in processes.having(token), "process with the token")
        assert set(processes.having(token)) == {marked.pid}
        assert processes.sweep(token)
        assert marked.wait() == -signal.SIGKILL
        assert almost.poll() is None
    finally:
        almost.kill()
        almost.wait()


PLAN = msgspec.json.encode(
    {
        "job_id": "job-a",
        "attempt": 1,
        "token": "1" * 32,
        "cause": None,
        "grace_us": 0,
        "directory": "/",
        "checkpoints": None,
        "ranks": [],
    }
)


def test_one_damaged_plan_kept_the_agent_of_the_whole_node_from_starting(node: Node) -> None:
    bound, other = run(node), run(node, job_id="job-b")
    for each in (bound, other):
        node.wait_fact(RanksStarted, each)
    node.kill_agent()
    rank = pids(node.wait_output(bound, "up"))[0]
    plan = node.folder_of(bound).path / shim.PLAN_FILE
    whole = plan.read_bytes()
    plan.write_bytes(whole[:-7])
    node.start_agent()
    failed = node.wait_fact(LaunchFailed, bound)
    assert (failed.retryable, failed.blame) == (True, "node")
    assert "damaged" in failed.reason
    assert not alive(rank), "it may be bound elsewhere now, and runs twice"
    go(node, other)
    assert node.wait_gone(other) == {0: 5}
    plan.write_bytes(whole)  # for the check that nothing is left


def test_one_damaged_record_took_the_agent_of_the_whole_node_down(node: Node) -> None:
    bound = run(node)
    node.wait_fact(RanksStarted, bound)
    with (node.folder_of(bound).path / shim.RECORDS_FILE).open("ab") as stream:
        stream.write(b"\0\0\0\n")
    go(node, bound)
    assert node.wait_gone(bound) == {0: 5}
    assert "which is no record" in node.stderr.read_text()


def test_a_job_that_deleted_its_run_folder_stalled_the_agent_and_was_never_reported(node: Node) -> None:
    bound = run(
        node, f"import os, shutil, time\n{UNTIL_GO}shutil.rmtree(os.path.dirname(os.getcwd()))\ntime.sleep(1000)"
    )
    node.wait_fact(RanksStarted, bound)
    go(node, bound)
    wait_for(lambda: not node.folder_of(bound).path.exists(), "end of the run folder")
    other = run(node, job_id="job-b")
    go(node, other)
    assert node.wait_gone(other) == {0: 5}
    assert not node.facts(RanksExited, bound), "it runs on"
    node.decide(stop(bound, grace_s=20))
    assert node.wait_gone(bound) == {0: -9}, "what its shim recorded is gone, too"
