"""Where gangline is: its folder, and the URLs of its parts, from flags, the environment and gangline.toml there."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli import toml_lines
from gangline.schemas.errors import NotFound, UsageError

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

    from gangline.events.log import Log

CONFIG = "gangline.toml"
KEYS = {"log": "GANGLINE_LOG", "sql": "GANGLINE_SQL", "objects": "GANGLINE_OBJECTS"}
"""What the file may say, and the variable that goes before it."""

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="GANGLINE_HOME",
        show_envvar=False,
        help="Gangline's folder [$GANGLINE_HOME, else ./.gangline].",
    ),
]
LogOption = Annotated[str | None, typer.Option("--log", help="The log: sqlite:FOLDER or kafka://HOST:PORT/PREFIX.")]
SqlOption = Annotated[
    str | None, typer.Option("--sql", help="The tables: sqlite:////FILE or postgresql+psycopg://USER@HOST/NAME.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one document.")]


def seconds(value: float | None) -> float | None:
    """Return what a --timeout says. Raises UsageError for what never passes: not-a-number waits for ever."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise UsageError(f"--timeout: this is {value:g}, but has to be a number of seconds, 0 or more")
    return value


class Place:
    """Gangline's folder and the URLs of its parts."""

    def __init__(
        self, home: Path | None, *, log: str | None = None, sql: str | None = None, must_exist: bool = True
    ) -> None:
        """Read the configuration. Raises NotFound without a folder, UsageError for a malformed file."""
        self.home = (home or Path(".gangline")).absolute()
        if must_exist and not self.home.is_dir() and log is None and KEYS["log"] not in os.environ:
            raise NotFound(
                f"there is no gangline in {self.home}: run `gangline up` here, or name its folder with --home or "
                "$GANGLINE_HOME"
            )
        configured = self._configured()
        given = {"log": log, "sql": sql, "objects": None}

        def chosen(key: str, default: str) -> str:
            return given[key] or os.environ.get(KEYS[key]) or configured.get(key) or default

        self.log_url = chosen("log", f"sqlite:{self.home / 'log'}")
        self.sql_url = chosen("sql", f"sqlite:///{self.home / 'projections.sqlite'}")
        self.objects_url = chosen("objects", (self.home / "objects").as_uri())

    def open_log(self) -> "Log":
        """Open the log. Raises NotFound if there is none, and what its backend raises."""
        from gangline.events.open_log import open_log

        if name := self.log_url.removeprefix("sqlite:").removeprefix("//"):
            folder = Path(name)
            if self.log_url.startswith("sqlite:") and not (folder / "control-0.db").exists():
                raise NotFound(f"there is no log in {folder}: `gangline up` makes one")
        return open_log(self.log_url)

    def open_tables(self) -> "Engine":
        """Open the database of the projections. Raises NotFound if there is none, UsageError for a wrong URL."""
        from gangline.projections.database import open_database

        return open_database(self.sql_url)

    def write_config(self) -> None:
        """Write the file, where there is none, with what differs from the defaults."""
        path = self.home / CONFIG
        if path.exists():
            return
        defaults = Place(self.home, must_exist=False)
        lines = ["# Where gangline's parts are. What is not said here lies in this folder."]
        for key, variable in KEYS.items():
            value = getattr(self, f"{key}_url")
            differs = value != getattr(defaults, f"{key}_url") or variable in os.environ
            lines.append(f"{'' if differs else '# '}{key} = '{value}'")
        path.write_text("\n".join(lines) + "\n")

    def _configured(self) -> dict[str, str]:
        path = self.home / CONFIG
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}): give this user the right to") from error
        text = toml_lines.decoded(data, str(path))
        table = toml_lines.parsed(text, str(path))
        for key, value in table.items():
            if key not in KEYS or not isinstance(value, str):
                line = toml_lines.line_of(text, (key,))
                raise UsageError(f"{path}:{line}: {key}: the keys are {', '.join(KEYS)}, each the text of a URL")
        return table
