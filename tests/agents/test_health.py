"""An agent reports by itself what is broken on its node, and how full the stores are that it watches."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from msgspec.structs import replace

from gangline.agents import health, inventory
from gangline.agents.stores import Limits, StoreWatch, used_part_ppm
from gangline.agents.xids import XidWatch
from gangline.events.control import NodeFaulted, StoragePressureChanged
from gangline.events.types import Gpu
from gangline.schemas.errors import UsageError
from tests.agents.node import NODE, Node, wait_for

OFTEN = ("--check-every", "0.1")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as started:
        yield started


@pytest.fixture
def small_store() -> Iterator[Path]:
    """Give a folder on a file system in memory, to which others write little."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def program(folder: Path, text: str) -> str:
    path = folder / "check-me"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def fill(store: Path, part: float) -> Path:
    """Take a part of a file system, as posix_fallocate(3) does."""
    status = os.statvfs(store)
    path = store / "data"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, int(status.f_blocks * status.f_frsize * part))
    return path


def test_a_node_whose_check_fails_is_reported_with_what_the_check_says(node: Node, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    path = program(tmp_path, f"[ ! -e {bad} ] || {{ echo its fan stands still; exit 3; }}")
    node.start_agent(*OFTEN, "--check-program", path)
    wait_for(node.heartbeats, "a heartbeat")
    bad.touch()
    fault = node.wait_fact(NodeFaulted)
    assert (fault.node_id, fault.gpu, fault.reason) == (NODE, None, "check-me: its fan stands still")
    wait_for(lambda: "the node is sick" in node.stderr.read_text(), "a word of it")


def test_what_stays_broken_is_reported_once_and_again_after_it_was_well(node: Node, tmp_path: Path) -> None:
    bad, runs = tmp_path / "bad", tmp_path / "runs"
    path = program(tmp_path, f"echo x >> {runs}; [ ! -e {bad} ]")

    def ran(more: int) -> None:
        count = len(runs.read_text())
        wait_for(lambda: len(runs.read_text()) >= count + 2 * more, "further checks")

    bad.touch()
    node.start_agent(*OFTEN, "--check-program", path)
    node.wait_fact(NodeFaulted)
    ran(4)
    assert len(node.facts(NodeFaulted)) == 1
    bad.unlink()
    ran(2)
    bad.touch()
    node.wait_fact(NodeFaulted, count=2)


def test_a_check_that_fails_once_is_no_fault(node: Node, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    path = program(tmp_path, f"echo x >> {runs}; [ $(wc -l < {runs}) -ne 2 ]")
    node.start_agent(*OFTEN, "--check-program", path)
    wait_for(lambda: runs.exists() and len(runs.read_text()) >= 8, "four checks")
    assert not node.facts(NodeFaulted)


def test_a_check_that_cannot_be_run_is_a_fault(node: Node, tmp_path: Path) -> None:
    node.start_agent(*OFTEN, "--check-program", str(tmp_path / "none"))
    assert "cannot be run (No such file or directory)" in node.wait_fact(NodeFaulted).reason


def test_a_store_that_fills_up_is_reported_and_again_when_there_is_room(node: Node, small_store: Path) -> None:
    used = used_part_ppm(small_store) / 1e4
    limits = ("--store-full", f"{used + 1}", "--store-released", f"{used + 0.5}")
    node.start_agent(*OFTEN, "--store", str(small_store), *limits)
    first = node.wait_fact(StoragePressureChanged)
    assert (first.store, first.pressed) == (small_store.as_uri(), False)
    data = fill(small_store, 0.02)
    full = node.wait_fact(StoragePressureChanged, count=2)
    assert full.pressed
    assert full.used_ppm > first.used_ppm
    data.unlink()
    assert not node.wait_fact(StoragePressureChanged, count=3).pressed


def test_a_check_that_hangs_with_a_child_that_holds_its_output_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROGRAM_S", 0.3)
    path = Path(program(tmp_path, "sleep 600 & echo looking; sleep 600"))
    assert health.fault_by(path) == f"{path} did not end within 0.3 s"


@pytest.mark.parametrize(("full", "released"), [(500_000, 600_000), (1_000_001, 0), (0, -1)])
def test_limits_that_cannot_be_are_told(full: int, released: int) -> None:
    with pytest.raises(UsageError, match="name parts of 0 to 100%"):
        StoreWatch((), Limits(full_ppm=full, released_ppm=released), None, None)  # type: ignore[arg-type]


def test_a_bucket_is_no_store_that_can_be_watched() -> None:
    with pytest.raises(UsageError, match=r"--store s3://bucket/x: .* name one, as /shared/checkpoints"):
        StoreWatch(("s3://bucket/x",), Limits(), None, None)  # type: ignore[arg-type]


def test_an_error_that_means_broken_hardware_is_told_and_a_program_s_own_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NVML stands in for a GPU that breaks, which no test can have."""
    said = [("GPU-1", 31), ("GPU-1", 79), ("GPU-2", 13), ("GPU-of-another", 48)]

    def next_event(_events: object, _timeout: int) -> SimpleNamespace:
        if not said:
            raise pynvml.NVMLError_Timeout
        uuid, xid = said.pop(0)
        return SimpleNamespace(device=uuid, eventData=xid)

    for name in ("nvmlInit", "nvmlShutdown", "nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents"):
        monkeypatch.setattr(pynvml, name, lambda *_: object())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda device: device)
    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", next_event)
    has = inventory.take(node_id="n", address="127.0.0.1", gpus=2, gpu_type="declared")
    watch = XidWatch(replace(has, devices=True, gpus=(Gpu(index=0, uuid="GPU-1"), Gpu(index=1, uuid="GPU-2"))))
    assert list(watch.broken()) == [0]
    assert "XID 79, it has fallen off the bus" in watch.broken()[0]
    watch.close()


def test_a_program_of_which_the_output_cannot_be_kept_did_not_hide_that_the_node_is_sick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    path = Path(program(tmp_path, "exit 0"))
    assert health.fault_by(path) == f"{path} cannot be run (No such file or directory)"
