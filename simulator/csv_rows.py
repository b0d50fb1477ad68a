"""The rows of a trace in CSV, read one by one, with errors that name the file, the row and the column.

Rows are counted as a person sees them in an editor: the header is line 1. A field with line breaks is refused, for no
trace has one.
"""

import csv
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from gangline.schemas.errors import GanglineError, NotFound

MAX_FIELD_CHARACTERS = 4_096
"""No field of a trace is longer; one that is comes from a file that is no trace."""
MAX_HEADER_CHARACTERS = 65_536
MAX_SHOWN_CHARACTERS = 60


class BadTrace(GanglineError):
    """A trace says what cannot be, or is none."""

    exit_code = 2


class Row:
    """One row: its fields by column, each checked as it is read."""

    __slots__ = ("_fields", "_path", "number")

    def __init__(self, path: Path, number: int, fields: dict[str, str]) -> None:
        """`path` and `number` are what an error names: the file, and the line in it."""
        self._path = path
        self.number = number
        self._fields = fields

    def text(self, column: str) -> str:
        """Return a field that may be empty."""
        return self._fields[column].strip()

    def name(self, column: str) -> str:
        """Return a field that is not empty. Raises BadTrace."""
        text = self.text(column)
        if not text:
            raise self.bad(column, "it is empty")
        return text

    def integer(self, column: str, least: int, most: int) -> int:
        """Return a whole number within limits. Raises BadTrace."""
        text = self.text(column)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise self.bad(column, f"it has to be a whole number of {least:,} to {most:,}")
        number = int(text)
        if not least <= number <= most:
            raise self.bad(column, f"it has to be {least:,} to {most:,}")
        return number

    def has(self, column: str) -> bool:
        """Whether the trace has this column, and the row something in it."""
        return bool(self._fields.get(column, "").strip())

    def bad(self, column: str, limit: str) -> BadTrace:
        """Return the error that this field breaks a limit; `limit` reads after 'but'."""
        value = self._fields.get(column, "").strip()
        shown = value if len(value) <= MAX_SHOWN_CHARACTERS else value[:MAX_SHOWN_CHARACTERS] + "..."
        return BadTrace(
            f"{self._path}, row {self.number}: {column} is {shown!r}, but {limit}: mend that row, or leave it out"
        )


def rows(path: Path, columns: Sequence[str]) -> Generator[Row, None, None]:
    """Yield the rows of a file that has at least these columns; further ones are kept, too. Close it before its end.

    Raises NotFound without such a file, BadTrace for a missing column or a row of another length.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from _rows(path, csv.reader(file, strict=True), columns)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}: name the trace's CSV file") from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadTrace(f"{path} is not UTF-8 text (byte {error.start} of a block): is it compressed?") from error


def columns(path: Path) -> list[str]:
    """Return the names in the header of a file. Raises NotFound, BadTrace."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [name.strip() for name in next(csv.reader([file.readline(MAX_HEADER_CHARACTERS)]), [])]
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}: name the trace's CSV file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTrace(f"{path} cannot be read as CSV: {error}") from error


def _rows(path: Path, lines: "Iterator[list[str]]", columns: Sequence[str]) -> Iterator[Row]:
    header: list[str] | None = None
    number = 0
    try:
        for number, fields in enumerate(lines, 1):
            if header is None:
                header = _header(path, [name.strip() for name in fields], columns)
            elif len(fields) != len(header):
                if fields:
                    raise BadTrace(
                        f"{path}, row {number}: it has {len(fields)} fields, but the header {len(header)} columns "
                        f"({', '.join(header)[:400]}): mend that row, or leave it out"
                    )
            elif max(map(len, fields)) > MAX_FIELD_CHARACTERS or any("\n" in field for field in fields):
                raise BadTrace(f"{path}, row {number}: a field spans lines or has more than {MAX_FIELD_CHARACTERS}")
            else:
                yield Row(path, number, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise BadTrace(f"{path}, row {number + 1}: {error}: it is no CSV") from error
    if header is None:
        raise BadTrace(f"{path} is empty: it begins with a header of {', '.join(columns)}")


def _header(path: Path, header: list[str], columns: Sequence[str]) -> list[str]:
    missing = [name for name in columns if name not in header]
    if missing:
        raise BadTrace(
            f"{path}, row 1: column {missing[0]} is missing; the header has {', '.join(header)[:400]}, "
            f"and needs {', '.join(columns)}"
        )
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise BadTrace(f"{path}, row 1: column {twice!r} appears twice: rename one")
    return header
