"""The SQLite log as the contract suite opens it."""

from pathlib import Path
from typing import Any

from gangline.events.log import Log
from gangline.events.sqlite import SqliteLog


class SqliteBackend:
    """A log in a folder; every `open` is one more user of it."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[SqliteLog] = []

    def open(self) -> Log:
        log = SqliteLog(self.folder)
        self._opened.append(log)
        return log

    def description(self) -> dict[str, Any] | None:
        return {"kind": self.kind, "folder": str(self.folder)}

    def close(self) -> None:
        for log in self._opened:
            log.close()
