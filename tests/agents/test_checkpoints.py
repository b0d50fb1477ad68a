"""Checkpoints that ranks finish and offers that they reject become facts: verified, once, and before `gone`."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.events import codec
from gangline.events.control import CheckpointRejected, CheckpointUploaded, RanksExited
from gangline.events.log import CONTROL
from tests.agents.node import NODE, Node, gang, share, wait_for

SAVE = """
import hashlib, os, sys, time
from pathlib import Path
from gangline.schemas.manifest import CheckpointFile, Manifest, encode_manifest, write_durably

def save(step, *, damaged=False, run=os.environ["GANGLINE_JOB_ID"]):
    folder = Path(os.environ["GANGLINE_CHECKPOINT_DIR"]) / f"step-{step}"
    folder.mkdir(parents=True)
    content = b"weights" * step
    (folder / "shard").write_bytes(content[:-1] if damaged else content)
    file = CheckpointFile(path="shard", size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    manifest = Manifest(run=run, attempt=int(os.environ["GANGLINE_ATTEMPT"]), step=step, world_size=1, files=(file,),
                        created_at_us=0, gangline_version="test")
    write_durably(folder / "manifest.json", encode_manifest(manifest))

def wait_to_go():
    print("up", flush=True)
    while not os.path.exists("go"): time.sleep(0.02)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as started:
        started.start_agent()
        yield started


def test_a_finished_checkpoint_is_reported_while_training_goes_on(node: Node) -> None:
    bound = gang("python", "-c", f"{SAVE}\nsave(3); wait_to_go()")
    node.decide(bound)
    fact = node.wait_fact(CheckpointUploaded, bound)
    assert (fact.checkpoint.step, fact.size_bytes) == (3, 21)
    assert fact.checkpoint.uri == (node.home / "checkpoints/job-a/attempt-1/step-3").as_uri()
    assert not node.facts(RanksExited, bound)
    (node.folder_of(bound).work / "go").touch()
    assert node.wait_gone(bound) == {0: 0}
    assert len(node.facts(CheckpointUploaded, bound)) == 1


def test_a_checkpoint_saved_in_the_last_moment_is_reported_before_the_share_is_gone(node: Node) -> None:
    bound = gang("python", "-c", f"{SAVE}\nsave(1); save(2); os.kill(os.getpid(), 9)")
    node.decide(bound)
    node.wait_gone(bound)
    kinds = [type(event) for event in node.events() if isinstance(event, CheckpointUploaded | RanksExited)]
    assert kinds.count(CheckpointUploaded) == 2
    assert kinds[-1] is RanksExited
    assert {event.checkpoint.step for event in node.facts(CheckpointUploaded)} == {1, 2}


def test_a_damaged_checkpoint_and_one_of_another_run_are_not_reported(node: Node) -> None:
    bound = gang("python", "-c", f"{SAVE}\nsave(1, damaged=True); save(2, run='other'); save(3)")
    node.decide(bound)
    assert node.wait_gone(bound) == {0: 0}
    assert [event.checkpoint.step for event in node.facts(CheckpointUploaded)] == [3]
    said = node.stderr.read_text()
    assert "step-1 is not reported" in said
    assert "step-2 is not reported: its manifest belongs to attempt 1 of 'other'" in said


def test_only_the_node_of_rank_0_reports_checkpoints(node: Node) -> None:
    shares = (share("node-0", (0,), 0), share(NODE, (0,), 1))
    bound = gang("python", "-c", f"{SAVE}\nsave(1)", shares=shares)
    node.decide(bound)
    assert node.wait_gone(bound) == {1: 0}
    assert not node.facts(CheckpointUploaded)


def test_a_checkpoint_that_the_log_has_is_not_verified_and_reported_again(node: Node) -> None:
    bound = gang("python", "-c", f"{SAVE}\nsave(1); wait_to_go(); save(2)")
    node.decide(bound)
    node.wait_fact(CheckpointUploaded, bound)
    wait_for(node.folder_of(bound).uploaded, "mark of the report")
    node.kill_agent(signal.SIGKILL)
    node.start_agent()
    (node.folder_of(bound).work / "go").touch()
    node.wait_gone(bound)
    assert [event.checkpoint.step for event in node.facts(CheckpointUploaded)] == [1, 2]


def test_a_rejected_offer_is_reported_once_from_any_node(node: Node) -> None:
    source = """
import os
from pathlib import Path
from gangline.schemas.launch import Rejection, write_rejection
spool = Path(os.environ["GANGLINE_SPOOL_DIR"])
write_rejection(spool, Rejection(uri="file:///c/step-9", manifest_sha256="b" * 64, step=9, reason="a shard is short"))
(spool / "rejected-broken.json").write_text("{")
"""
    bound = gang("python", "-c", source, shares=(share("node-0", (0,), 0), share(NODE, (0,), 1)))
    node.decide(bound)
    assert node.wait_gone(bound) == {1: 0}
    (fact,) = node.facts(CheckpointRejected)
    assert (fact.checkpoint.step, fact.checkpoint.uri, fact.reason) == (9, "file:///c/step-9", "a shard is short")
    assert "rejected-broken.json is not reported" in node.stderr.read_text()


def test_facts_are_keyed_by_job_and_registrations_by_node(node: Node) -> None:
    bound = gang("true")
    node.decide(bound)
    node.wait_gone(bound)
    reader = node.log.reader(CONTROL)
    keys = {type(codec.decode(record.value)).__name__: record.key for batch in reader.read_to_end() for record in batch}
    reader.close()
    assert (keys["NodeRegistered"], keys["RanksStarted"], keys["RanksExited"]) == (b"node-1", b"job-a", b"job-a")
