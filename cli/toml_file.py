"""A TOML file whose mistakes are told by line: read whole, then key by key through readers of `gangline.cli.values`."""

from pathlib import Path
from typing import TypeVar

from gangline.cli import toml_lines
from gangline.cli.values import Bad, Reader
from gangline.schemas.errors import NotFound, UsageError

T = TypeVar("T")
MAX_FILE_BYTES = 1_000_000
"""A policy becomes a record of `control`, and people write scenarios; a larger file is something else."""


class TomlFile:
    """The text of a file and its table. `what` it is, such as "a scenario", stands in messages."""

    def __init__(self, path: Path, what: str) -> None:
        """Read and parse it. Raises NotFound, and UsageError with the line if it is no TOML."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no file {path}: name {what}") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}): name {what}") from error
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(
                f"{path} has {len(data):,} bytes, {what} has at most {MAX_FILE_BYTES:,}: name another file"
            )
        self.path = path
        self.text = toml_lines.decoded(data, str(path))
        self.table = toml_lines.parsed(self.text, str(path))

    def read(self, reader: Reader[T]) -> T:
        """Return what a reader makes of the whole. Raises UsageError with line and key."""
        try:
            return reader(self.table)
        except Bad as error:
            raise UsageError(self.located(error.path, str(error))) from None

    def located(self, path: tuple[str | int, ...], message: str) -> str:
        """Return a message about a key, with file and line."""
        where = f"{toml_lines.shown(path)}: " if path else ""
        return f"{self.path}:{toml_lines.line_of(self.text, path)}: {where}{message}"
