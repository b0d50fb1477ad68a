"""What commands print: tables or JSON on stdout, progress on stderr, colour on a terminal only."""

import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
STATE_COLOURS = {
    **dict.fromkeys(("running", "succeeded", "up", "healthy"), GREEN),
    **dict.fromkeys(("failed", "lost", "quarantined"), RED),
    **dict.fromkeys(("stopping", "held", "cordoned", "draining", "drained"), YELLOW),
    "cancelled": DIM,
}


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def say(text: str) -> None:
    """Tell how it goes, where it does not mix with data."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Return a text on one line without what steers a terminal: names and causes are others' words."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def paint(text: str, colour: str) -> str:
    """Colour a text if stdout is a terminal."""
    return f"\x1b[{colour}m{text}\x1b[0m" if sys.stdout.isatty() else text


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their headings; numbers go to the right."""
    cells = [[("-" if cell is None else printable(str(cell))) for cell in row] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in cells), 0) for i, column in enumerate(columns)]
    right = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(columns))]

    def line(parts: Sequence[str]) -> list[str]:
        return [
            part.rjust(width) if to_right else part.ljust(width)
            for part, width, to_right in zip(parts, widths, right, strict=True)
        ]

    print(paint("  ".join(line([column.upper() for column in columns])).rstrip(), BOLD))
    for row in cells:
        shown = line(row)
        painted = [
            paint(text, STATE_COLOURS[cell]) if cell in STATE_COLOURS else text
            for text, cell in zip(shown, row, strict=True)
        ]
        print("  ".join(painted).rstrip())


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(".", "", 1).isdigit()


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        if value is not None:
            print(f"{paint(name.ljust(width), BOLD)}  {printable(str(value))}")
