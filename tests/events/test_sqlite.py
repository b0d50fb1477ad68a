"""The log in SQLite keeps the contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.events.log_contract import LogContract
from tests.events.sqlite_backend import SqliteBackend


class TestSqliteLog(LogContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[SqliteBackend]:
        backend = SqliteBackend(tmp_path / "log")
        yield backend
        backend.close()
