"""A projector that is killed at any moment goes on as if nothing had been, in either database."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from gangline.events.log import CONTROL, DECISIONS, Entry
from gangline.events.memory import MemoryLog
from gangline.events.sqlite import SqliteLog
from gangline.projections.database import open_database
from gangline.projections.digest import Digest, digest
from gangline.projections.positions import load
from gangline.schemas.errors import NotFound
from tests.histories import Script

JOBS = 300
"""Three rounds each, so that a dozen transactions are there to be killed in."""

KILLS = 3
BOUND_S = 60.0

pytestmark = pytest.mark.slow


def lived_in(folder: Path) -> None:
    """Write a history that takes many transactions to project."""
    script = Script(MemoryLog())
    script.starts()
    script.node()
    for _ in range(JOBS):
        job = script.admits()
        script.binds(job)
        script.runs(job)
        script.exits(job, 0)
        script.ends(job)
    log = SqliteLog(folder)
    for topic in (CONTROL, DECISIONS):
        for records in script.log.reader(topic).read_to_end():
            log.append(topic, [Entry(record.key, record.value) for record in records])
    log.close()


def projector(log: Path, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gangline.projections", "--home", str(log.parent)]
    return subprocess.Popen([*command, "--log", f"sqlite:{log}", "--sql", url, "--once"])


def covered(url: str) -> int:
    """Return how many records of `control` the tables cover."""
    try:
        engine = open_database(url)
        with engine.connect() as connection:
            stand = load(connection)
    except (NotFound, OperationalError):
        return 0
    engine.dispose()
    return 0 if stand is None else stand.control.index


def whole(log: Path, url: str) -> Digest:
    assert projector(log, url).wait(BOUND_S) == 0
    engine = open_database(url)
    found = digest(engine)
    engine.dispose()
    return found


def kill_midway(log: Path, url: str) -> None:
    """Kill a projector as soon as it has got on a little."""
    before = covered(url)
    running = projector(log, url)
    deadline = time.monotonic() + BOUND_S
    while covered(url) == before:
        assert running.poll() is None, "it was done before it could be killed"
        assert time.monotonic() < deadline, "it does not get on"
        time.sleep(0.001)
    running.kill()
    running.wait()


def test_killed_projectors_leave_the_tables_of_one_that_lived(tmp_path: Path, postgres_url: str) -> None:
    log = tmp_path / "log"
    lived_in(log)
    expected = whole(log, f"sqlite:///{tmp_path}/whole.sqlite")
    for url in (f"sqlite:///{tmp_path}/killed.sqlite", postgres_url):
        for _ in range(KILLS):
            kill_midway(log, url)
        assert whole(log, url) == expected
