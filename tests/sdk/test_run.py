"""The run: importing costs nothing, what is logged is kept, and mistakes are named."""

import json
import math
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import gangline
from gangline.schemas.errors import UsageError
from gangline.schemas.spool import OWN_TIME, Point, SpoolUnwritable, read_spool, spool_path
from gangline.sdk import place as p
from gangline.sdk.run import active_run

HEAVY = {"torch", "numpy", "fastavro", "sqlalchemy", "confluent_kafka", "apsw", "boto3", "typer", "chdb", "psutil"}
SERVER_FOLDERS = {"events", "scheduler", "agents", "projections", "cli", "registry"}


@pytest.fixture(autouse=True)
def no_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("GANGLINE_JOB_ID", "GANGLINE_RUN", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    yield
    if gangline.sdk.run._active is not None:
        gangline.sdk.run._active.finish()


def points(run_dir: Path, attempt: int = 1, rank: int = 0) -> tuple[Point, ...]:
    return read_spool(spool_path(run_dir / f"attempt-{attempt}" / "spool", rank)).points


def run_python(code: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=check)


def test_importing_and_logging_loads_nothing_heavy(tmp_path: Path) -> None:
    code = """
import json, sys
import gangline
first = sorted(sys.modules)
run = gangline.init("job", folder=sys.argv[1])
run.log({"loss": 1}, step=1)
gangline.Checkpointer(run)
print(json.dumps([first, sorted(sys.modules)]))
"""
    first, later = json.loads(run_python(code, str(tmp_path)).stdout)
    assert not [name for name in first if name.startswith("gangline.")]
    assert not HEAVY & {name.partition(".")[0] for name in later}
    assert not SERVER_FOLDERS & {name.split(".")[1] for name in later if name.startswith("gangline.")}


def test_every_public_name_exists_and_others_are_attribute_errors() -> None:
    assert all(getattr(gangline, name) for name in gangline.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = gangline.nope


def test_what_is_logged_is_kept_as_doubles_in_the_order_of_the_calls(tmp_path: Path) -> None:
    class LikeATensor:
        def __float__(self) -> float:
            return 2.5

    with gangline.init("job", folder=tmp_path) as run:
        run.log({"a": 1, "b": True, "c": Fraction(1, 4), "d": LikeATensor(), "e": math.inf}, step=7)
        run.log({"a": math.nan}, step=3)
    first, second = points(tmp_path / "job")
    assert (first.step, first.values) == (7, {"a": 1.0, "b": 1.0, "c": 0.25, "d": 2.5, "e": math.inf})
    assert second.step == 3
    assert math.isnan(second.values["a"])


def test_a_sigkill_right_after_log_returns_loses_nothing(tmp_path: Path) -> None:
    code = """
import os, signal, sys
import gangline
run = gangline.init("job", folder=sys.argv[1])
for step in range(300):
    run.log({"loss": step / 3}, step=step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_python(code, str(tmp_path), check=False).returncode == -signal.SIGKILL
    assert [(q.step, q.values) for q in points(tmp_path / "job")] == [(s, {"loss": s / 3}) for s in range(300)]


def test_threads_may_log_at_once(tmp_path: Path) -> None:
    run = gangline.init("job", folder=tmp_path)
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda step: run.log({"x": step}, step=step), range(2000)):
            pass
    assert sorted(q.step for q in points(tmp_path / "job")) == list(range(2000))


@pytest.mark.parametrize(
    ("values", "step", "text"),
    [
        ({"loss": "0.5"}, 1, r"metric 'loss' is '0.5' of type str, but must be a number"),
        ({"loss": None}, 1, r"metric 'loss' is None of type NoneType"),
        ({"loss": [1.0]}, 1, r"metric 'loss' is \[1.0\] of type list"),
        ({"loss": 1j}, 1, r"metric 'loss' is 1j of type complex"),
        ({"loss": 10**400}, 1, r"metric 'loss' is a int that is no one number"),
        ({3: 1.0}, 1, r"3 cannot name a metric"),
        ({"": 1.0}, 1, r"'' cannot name a metric"),
        ({"\udc80": 1.0}, 1, r"cannot name a metric"),
        ({"n" * 257: 1.0}, 1, r"cannot name a metric: use a string of 1 to 256 bytes"),
        ([("loss", 1.0)], 1, r"log\(\) takes a dict of numbers by name, got list"),
        ({"loss": 1.0}, -1, r"step is -1, but must be a whole number"),
        ({"loss": 1.0}, 0.5, r"step is 0.5"),
        ({"loss": 1.0}, None, r"step is None"),
        ({"loss": 1.0}, True, r"step is True"),
        ({"loss": 1.0}, 2**63, r"from 0 to 2\^63 - 1"),
    ],
)
def test_a_mistake_in_log_is_named_and_writes_nothing(tmp_path: Path, values: Any, step: Any, text: str) -> None:  # noqa: ANN401
    run = gangline.init("job", folder=tmp_path)
    with pytest.raises(UsageError, match=text):
        run.log(values, step=step)
    assert list(tmp_path.iterdir()) == []


def test_logging_after_finish_is_refused_and_finish_may_be_repeated(tmp_path: Path) -> None:
    run = gangline.init("job", folder=tmp_path)
    run.log({"a": 1}, step=1)
    run.finish()
    run.finish()
    with pytest.raises(UsageError, match=r"run 'job' is finished.*init\(\) again"):
        run.log({"a": 1}, step=2)
    with pytest.raises(UsageError, match="there is no run"):
        active_run()


def test_init_again_gives_the_same_run_and_another_name_is_refused(tmp_path: Path) -> None:
    run = gangline.init("job", folder=tmp_path)
    assert gangline.init("job", folder=tmp_path) is run
    with pytest.raises(UsageError, match="run 'job' goes on in this process"):
        gangline.init("other", folder=tmp_path)
    run.finish()
    assert gangline.init("other", folder=tmp_path) is not run


def test_a_run_is_named_by_argument_then_environment_then_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/my train.py"])
    assert p.run_name(None, {}) == "my-train"
    assert p.run_name(None, {"GANGLINE_RUN": "env"}) == "env"
    assert p.run_name("given", {"GANGLINE_RUN": "env"}) == "given"
    monkeypatch.setattr(sys, "argv", ["-"])
    with pytest.raises(UsageError, match=r"gangline\.init\(name="):
        p.run_name(None, {})


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "n" * 129, "sp ace", "\0"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        gangline.init(name)


def test_inside_gangline_the_launcher_names_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_JOB_ID", "job-abc")
    with pytest.raises(UsageError, match="GANGLINE_ATTEMPT, GANGLINE_CHECKPOINT_DIR, GANGLINE_SPOOL_DIR not"):
        gangline.init()
    monkeypatch.setenv("GANGLINE_ATTEMPT", "3")
    monkeypatch.setenv("GANGLINE_CHECKPOINT_DIR", str(tmp_path / "c" / "job-abc" / "attempt-3"))
    monkeypatch.setenv("GANGLINE_SPOOL_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "5")
    run = gangline.init("ignored", folder="ignored")
    run.log({"a": 1}, step=1)
    assert (run.name, run.attempt, run.by_gangline) == ("job-abc", 3, True)
    batch = read_spool(tmp_path / "metrics-rank-5.spool")
    assert (batch.head.run, batch.head.attempt, batch.head.rank) == ("job-abc", 3, 5)


@pytest.mark.parametrize(("name", "value"), [("GANGLINE_ATTEMPT", "0"), ("GANGLINE_ATTEMPT", "x"), ("RANK", "-1")])
def test_a_wrong_number_in_the_environment_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    for key in ("GANGLINE_JOB_ID", "GANGLINE_CHECKPOINT_DIR", "GANGLINE_SPOOL_DIR"):
        monkeypatch.setenv(key, str(tmp_path))
    monkeypatch.setenv("GANGLINE_ATTEMPT", "1")
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{name} is '{value}'"):
        gangline.init().log({"a": 1}, step=1)


def test_a_spool_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("GANGLINE_JOB_ID", "GANGLINE_CHECKPOINT_DIR", "GANGLINE_SPOOL_DIR"):
        monkeypatch.setenv(key, str(tmp_path / "no"))
    monkeypatch.setenv("GANGLINE_ATTEMPT", "1")
    with pytest.raises(SpoolUnwritable, match="make the folder writable or choose another"):
        gangline.init().log({"a": 1}, step=1)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(p.PlaceError, match=r"file/job: Not a directory; make it writable, or choose"):
        gangline.init("job", folder=tmp_path / "file").log({"a": 1}, step=1)


def claim(run_dir: Path, environ: dict[str, str], results: Any) -> None:  # noqa: ANN401 - a queue of a context
    results.put(p.claim_place(run_dir, environ).attempt)


def test_processes_of_one_launch_share_an_attempt_and_each_launch_has_its_own(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    results = context.SimpleQueue()
    launches = [
        {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "TORCHELASTIC_RESTART_COUNT": str(restart)} for restart in range(3)
    ]
    processes = [
        context.Process(target=claim, args=(tmp_path / "job", environ, results)) for environ in launches for _ in "abc"
    ]
    for process in processes:
        process.start()
    claimed = sorted(results.get() for _ in processes)
    for process in processes:
        process.join()
    assert claimed == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert sorted(entry.name for entry in (tmp_path / "job").iterdir()) == ["attempt-1", "attempt-2", "attempt-3"]


def test_each_run_of_a_plain_script_is_a_new_attempt(tmp_path: Path) -> None:
    code = "import gangline, sys; print(gangline.init('job', folder=sys.argv[1]).attempt)"
    assert [run_python(code, str(tmp_path)).stdout.strip() for _ in range(3)] == ["1", "2", "3"]


def test_a_rank_that_neither_logs_nor_saves_leaves_no_trace(tmp_path: Path) -> None:
    gangline.init("job", folder=tmp_path).finish()
    assert list(tmp_path.iterdir()) == []


def test_what_a_rank_computes_by_itself_is_kept_with_the_step_that_it_was_for(tmp_path: Path) -> None:
    with gangline.init("job", folder=tmp_path) as run:
        run.log({"loss": 1.0}, step=0)
        with run.computing():
            pass
        with pytest.raises(ValueError, match="a batch"), run.computing():
            raise ValueError("a batch")
        run.log({"loss": 1.0}, step=1)
        run.log({"loss": 1.0}, step=2)
    assert [OWN_TIME in point.values for point in points(tmp_path / "job")] == [False, True, False]
