"""What ranks find in their environment, held against a real torchrun."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gangline.agents import launch
from gangline.agents.inventory import take
from gangline.agents.launch import LaunchRefused
from gangline.events.types import CheckpointRef
from gangline.schemas.launch import decode_resume
from tests.agents.node import Node, gang

DUMP = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"

OWN = {"PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GANGLINE_ATTEMPT_TOKEN"} | {
    f"GANGLINE_{name}" for name in ("JOB_ID", "ATTEMPT", "CHECKPOINT_DIR", "RESUME", "SPOOL_DIR")
}
"""What gangline adds."""

DIFFERENT = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE", "MASTER_PORT"}
"""What has its own value in every launch, apart from the store, which torchrun's agent serves and ours does not."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.slow
def test_ranks_get_the_environment_that_torchrun_gives_them(tmp_path: Path) -> None:
    script = tmp_path / "dump.py"
    script.write_text(
        f"import sys\nsys.stdout = open(sys.argv[1] + '-' + __import__('os').environ['RANK'], 'w')\n{DUMP}"
    )
    base = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--nnodes=1", "--max-restarts=0"),
            *("--master-addr=127.0.0.1", f"--master-port={free_port()}", str(script), str(tmp_path / "torchrun")),
        ],
        env=base,
        check=True,
        capture_output=True,
        timeout=100,
    )
    with Node(tmp_path) as node:
        bound = gang("python", "-c", DUMP, ranks=2, port=free_port())
        node.start_agent(**base)
        node.decide(bound)
        assert node.wait_gone(bound) == {0: 0, 1: 0}
        for rank in (0, 1):
            theirs = json.loads((tmp_path / f"torchrun-{rank}").read_text())
            ours = json.loads(node.wait_output(bound, "}", rank=rank))
            ignored = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "VIRTUAL_ENV"}
            assert theirs.keys() - ignored <= ours.keys()
            compared = theirs.keys() - ignored - DIFFERENT - {"PATH"}
            assert {name: ours.get(name) for name in compared} == {name: theirs[name] for name in compared}
            assert ours["TORCHELASTIC_USE_AGENT_STORE"] == "False"
            added = {name for name in ours.keys() - theirs.keys() - ignored if name in OWN or name.startswith("TORCH")}
            assert added == OWN
            assert ours["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_gangline_tells_a_rank_its_job_attempt_and_checkpoints(tmp_path: Path) -> None:
    ref = CheckpointRef(step=40, uri="file:///c/step-40", manifest_sha256="a" * 64)
    bound = replace(gang("python", "-c", DUMP, attempt=3), resume=(ref,))
    with Node(tmp_path) as node:
        node.start_agent()
        node.decide(bound)
        assert node.wait_gone(bound) == {0: 0}
        got = json.loads(node.wait_output(bound, "}"))
        assert (got["GANGLINE_JOB_ID"], got["GANGLINE_ATTEMPT"]) == ("job-a", "3")
        assert got["TORCHELASTIC_RESTART_COUNT"] == "2"
        assert got["GANGLINE_CHECKPOINT_DIR"] == str(node.home / "checkpoints/job-a/attempt-3")
        assert [(offer.step, offer.uri) for offer in decode_resume(got["GANGLINE_RESUME"])] == [(40, ref.uri)]
        assert Path(got["GANGLINE_SPOOL_DIR"]).is_dir()
        assert got["PWD"] == str(node.folder_of(bound).work)


def test_a_job_may_set_what_is_only_a_default_and_nothing_that_gangline_sets(tmp_path: Path) -> None:
    asked = {"OMP_NUM_THREADS": "4", "PYTHONUNBUFFERED": "", "RANK": "9", "GANGLINE_JOB_ID": "x", "MY_OWN": "1"}
    with Node(tmp_path) as node:
        bound = gang("python", "-c", DUMP, ranks=2, env=asked)
        node.start_agent()
        node.decide(bound)
        node.wait_gone(bound)
        got = json.loads(node.wait_output(bound, "}", rank=1))
    assert {name: got[name] for name in asked} == {**asked, "RANK": "1", "GANGLINE_JOB_ID": "job-a"}


@pytest.mark.slow
def test_ddp_meets_at_the_master_port_without_torchruns_store(tmp_path: Path) -> None:
    source = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "x = torch.ones(1) * dist.get_rank(); dist.all_reduce(x); print('sum', x.item(), flush=True)\n"
        "dist.destroy_process_group()"
    )
    with Node(tmp_path) as node:
        bound = gang("python", "-c", source, ranks=2, port=free_port())
        node.start_agent()
        node.decide(bound)
        assert "sum 1.0" in node.wait_output(bound, "sum", timeout_s=90)
        assert node.wait_gone(bound) == {0: 0, 1: 0}


@pytest.mark.parametrize("base", [None, "/shared/c", "file:///shared/c"])
def test_checkpoints_lie_by_job_and_attempt_under_their_base(base: str | None, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints" if base is None else Path("/shared/c")
    assert launch.checkpoint_folder(base, tmp_path, "job-a", 2) == root / "job-a/attempt-2"


def test_a_base_for_checkpoints_that_nothing_here_can_write_fails_for_good(tmp_path: Path) -> None:
    with pytest.raises(LaunchRefused, match=r"checkpoints = 's3://bucket'.*file:///absolute/path only") as refused:
        launch.checkpoint_folder("s3://bucket", tmp_path, "job-a", 1)
    assert (refused.value.retryable, refused.value.blame) == (False, "job")


def test_a_port_with_nothing_but_old_connections_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0] as accepted:
            accepted.shutdown(socket.SHUT_RDWR)
    launch.check_port(port, "node-1")


def test_a_program_in_the_code_that_is_not_on_the_path_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "train.sh").touch()
    with pytest.raises(LaunchRefused, match=r"write \./train\.sh"):
        launch.find_program("train.sh", tmp_path, "/usr/bin", "node-1")


def test_relative_parts_of_the_path_are_not_searched(tmp_path: Path) -> None:
    with pytest.raises(LaunchRefused, match="looked in PATH=/usr/bin;"):
        launch.find_program("no-such", tmp_path, ".:/usr/bin:bin", "node-1")


def test_declared_slots_are_counted_from_0_and_have_a_type() -> None:
    has = take(node_id="n", gpus=3, gpu_type="declared", address="10.0.0.1")
    assert ([gpu.index for gpu in has.gpus], has.gpu_type, has.address) == ([0, 1, 2], "declared", "10.0.0.1")
    assert has.cpu_milli >= 1000
    assert has.memory_bytes > 1 << 28
