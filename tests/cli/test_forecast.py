"""A user asks a running cluster what would become of a job; nothing is submitted by that."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.cli.up import node_id
from tests.cli.invoke import Gangline, document
from tests.cli.running import Up, until, up

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.usefixtures("here")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("foreseen") / "home", "--gpus", "2") as running:
        yield running


def test_what_fits_would_start_at_once_and_nothing_is_submitted(gangline: Gangline, tmp_path: Path) -> None:
    spec = tmp_path / "job.toml"
    spec.write_text('command = "true"\n[resources]\ngpus = 2\n')
    ran = gangline("forecast", spec)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == ["it would start at once", f"on  {node_id()}"]
    assert document(gangline, "forecast", spec)["outcome"] == "starts"
    assert document(gangline, "jobs") == []


def test_what_is_refused_is_told_as_submit_would(gangline: Gangline) -> None:
    ran = gangline("forecast", "--gpus", 3)
    assert ran.code == 4
    assert ran.out.startswith("it would be refused: gpus is 3, but ")


def test_what_has_to_wait_is_told_for_whom_how_long_and_on_what_that_rests(gangline: Gangline) -> None:
    ran = gangline("submit", "--gpus", 2, "--max-runtime", "1h", "--grace", "1s", "--json", "--", "sleep", "600")
    job = json.loads(ran.out)["job_id"]
    until(lambda: document(gangline, "why", job)["standing"] == "running", "a start")
    ran = gangline("forecast", "--gpus", 1, "--not-preemptible")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("it would wait, and start in about 59m")
    assert f"the end of {job}" in ran.out
    assert "1 job by max_runtime" in ran.out
    said = document(gangline, "forecast", "--gpus", 1, "--horizon", "10m")
    assert (said["outcome"], said["waits"]["change"]["subjects"]) == ("never", [job])
    assert gangline("job", "cancel", job).code == 0
    assert gangline("job", "wait", job, "--timeout", 60).code == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--gpus", "x"], "--gpus"),
        (["--horizon", "soon"], "--horizon soon"),
        (["--horizon", "31d"], "up to 30d"),
        (["--gpus", "0.5555"], "--gpus"),
    ],
)
def test_what_is_no_spec_is_told_by_flag(words: list[str], text: str, gangline: Gangline) -> None:
    ran = gangline("forecast", *words)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
