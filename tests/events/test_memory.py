"""The log in memory keeps the contract."""

from typing import Any

import pytest

from gangline.events.log import Log
from gangline.events.memory import MemoryLog
from tests.events.log_contract import LogContract


class MemoryBackend:
    """One log, shared by all who open it."""

    kind = "memory"

    def __init__(self) -> None:
        self._log = MemoryLog()

    def open(self) -> Log:
        return self._log

    def description(self) -> dict[str, Any] | None:
        return None


class TestMemoryLog(LogContract):
    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()
