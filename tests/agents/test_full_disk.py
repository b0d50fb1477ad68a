"""An agent whose disk takes nothing more: jobs can be stopped all the same, and everything is reported."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.events.control import LaunchFailed, NodeRegistered, RanksStarted
from tests.agents.node import NODE, Node, gang, stop, wait_for

SAVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print('up', flush=True)
while True: time.sleep(0.02)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Give a node whose run folders lie on a file system of 1 MB, and its log elsewhere."""
    node = Node(tmp_path)
    node.home.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(node.home)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        node.log.close()
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        with node:
            yield node
    finally:
        subprocess.run(["umount", "--lazy", str(node.home)], check=True)


def fill(node: Node) -> None:
    with contextlib.suppress(OSError), (node.home / "filler").open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass


def test_a_job_that_filled_the_disk_could_not_be_stopped_and_took_the_agent_down(node: Node) -> None:
    bound = gang("python", "-c", SAVES)
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "up")
    node.wait_fact(RanksStarted, bound)
    fill(node)
    node.decide(stop(bound, grace_s=20))
    assert node.wait_gone(bound) == {0: 7}
    assert node.agent is not None
    assert node.agent.poll() is None


def test_what_cannot_be_launched_on_a_full_disk_says_so_and_may_be_tried_again(node: Node) -> None:
    node.start_agent()
    node.wait_fact(NodeRegistered)
    wait_for((node.home / "agents" / NODE / "log_id").exists, "agent that has seen the log")
    fill(node)
    bound = gang("true")
    node.decide(bound)
    failed = node.wait_fact(LaunchFailed, bound)
    assert (failed.retryable, failed.blame) == (True, "node")
    assert "No space left" in failed.reason
