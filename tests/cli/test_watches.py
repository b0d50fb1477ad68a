"""What agents watch by themselves makes the scheduler act, on a real cluster: sick nodes, full stores, slow ranks."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.agents.stores import used_part_ppm
from tests.cli.invoke import Gangline, document
from tests.cli.running import Up, agent, until, up

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.usefixtures("here")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("watched") / "home", "--gpus", "1", "--gpu-type", "plain") as running:
        yield running


def submitted(gangline: Gangline, *words: object) -> str:
    """Submit; what stands behind the last -- is the command."""
    at = len(words) - words[::-1].index("--") - 1
    ran = gangline("submit", *words[:at], "--grace", "1s", "--json", *words[at:])
    assert ran.code == 0, ran.err
    return str(json.loads(ran.out)["job_id"])


def shown(gangline: Gangline, job: str) -> Any:  # noqa: ANN401 - JSON
    return document(gangline, "job", "show", job)


def runs(gangline: Gangline, job: str) -> bool:
    return bool(shown(gangline, job)["job"]["state"] == "running")


def node_of(gangline: Gangline, name: str) -> Any:  # noqa: ANN401 - JSON
    return next((node for node in document(gangline, "nodes") if node["node_id"] == name), None)


def test_a_node_whose_check_fails_is_quarantined_and_its_job_goes_on_elsewhere(
    cluster: Up, gangline: Gangline, tmp_path: Path
) -> None:
    bad, program = tmp_path / "bad", tmp_path / "fan"
    program.write_text(f"#!/bin/sh\n[ ! -e {bad} ] || {{ echo its fan stands still; exit 1; }}\n")
    program.chmod(0o755)
    words = ("--gpus", "1", "--gpu-type", "fan", "--check-every", "0.2")
    with agent(cluster.home, "fan-1", *words, "--check-program", str(program)):
        until(lambda: node_of(gangline, "fan-1"), "the first node")
        job = submitted(gangline, "--gpu-type", "fan", "--", "sleep", "600")
        until(lambda: runs(gangline, job), "a start")
        bad.touch()
        until(lambda: node_of(gangline, "fan-1")["state"] == "quarantined", "the quarantine")
        assert "fan: its fan stands still" in gangline("nodes").out
        until(lambda: shown(gangline, job)["job"]["state"] == "pending", "the requeue")
        with agent(cluster.home, "fan-2", *words):
            until(lambda: runs(gangline, job), "the next attempt")
            placed = [share["node_id"] for one in shown(gangline, job)["attempts"] for share in one["placement"]]
            assert placed == ["fan-1", "fan-2"]
            bad.unlink()
            assert gangline("node", "uncordon", "fan-1").code == 0
            until(lambda: node_of(gangline, "fan-1")["state"] == "up", "the node in use again")
            assert gangline("job", "cancel", job).code == 0
            assert gangline("job", "wait", job, "--timeout", 60).code == 1


def test_a_nearly_full_store_holds_back_what_would_write_much_until_there_is_room(
    cluster: Up, gangline: Gangline
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        store = Path(folder)
        used = used_part_ppm(store) / 1e4
        words = ("--store", folder, "--store-full", f"{used + 1}", "--store-released", f"{used + 0.5}")
        status = os.statvfs(store)
        with (store / "data").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, int(status.f_blocks * status.f_frsize * 0.02))
        with agent(cluster.home, "store-1", "--gpus", "1", "--gpu-type", "store", "--check-every", "0.2", *words):
            until(lambda: node_of(gangline, "store-1"), "the node")
            said = cluster.home.parent / "store-1.said"
            until(lambda: "nearly full: jobs that write much wait" in said.read_text(), "the report")
            place = ("--gpu-type", "store", "--checkpoints", folder)
            much = submitted(gangline, *place, "--data", "2TiB", "--", "sleep", "600")
            little = submitted(gangline, *place, "--data", "1GiB", "--", "true")
            assert gangline("job", "wait", little, "--timeout", 60).code == 0
            until(lambda: "storage" in gangline("job", "show", much).out, "the reason")
            assert shown(gangline, much)["job"]["state"] == "pending"
            (store / "data").unlink()
            until(lambda: runs(gangline, much), "the start")
            assert gangline("job", "cancel", much).code == 0
            assert gangline("job", "wait", much, "--timeout", 60).code == 1


TRAINS = """
import os, time
import gangline
run = gangline.init()
slow = os.environ['RANK'] == '1' and os.environ['GANGLINE_ATTEMPT'] == '1'
for step in range(100_000):
    time.sleep(0.2 if slow else 0.02)
    run.log({'loss': 0.0}, step=step)
"""


def test_a_node_whose_rank_is_slow_for_long_is_replaced(cluster: Up, gangline: Gangline) -> None:
    words = ("--gpus", "1", "--gpu-type", "pace", "--pace-window", "0.8")
    with agent(cluster.home, "pace-1", *words), agent(cluster.home, "pace-2", *words):
        until(lambda: node_of(gangline, "pace-1") and node_of(gangline, "pace-2"), "two nodes")
        job = submitted(gangline, "--gpu-type", "pace", "--gpus", 2, "--nodes", 2, "--", "python", "-c", TRAINS)
        until(lambda: shown(gangline, job)["attempts"], "a start")
        with agent(cluster.home, "pace-3", *words):
            until(lambda: len(shown(gangline, job)["attempts"]) == 2 and runs(gangline, job), "the next attempt")
            first, second = ([one["node_id"] for one in each["placement"]] for each in shown(gangline, job)["attempts"])
            assert len({*first, *second}) == 3
            slow = first[1]
            assert slow not in second
            assert node_of(gangline, slow)["state"] == "quarantined"
            assert "of its peers' time for a step" in gangline("nodes").out
            assert shown(gangline, job)["attempts"][0]["stop_reason"] == "straggler"
            assert gangline("job", "cancel", job).code == 0
            assert gangline("job", "wait", job, "--timeout", 60).code == 1
