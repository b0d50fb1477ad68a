"""The `gangline` command: parse, call, print."""

import gc
import sys

from gangline.schemas.errors import GanglineError, UsageError

__all__ = ["main"]

SERVER_PACKAGES = frozenset(
    "apsw boto3 botocore chdb clickhouse_connect confluent_kafka fastavro immutables numpy psutil psycopg pynvml rich "
    "sqlalchemy typer urllib3".split()
)
"""What the extra `server` brings, by import name; a base install, as in a training image, has none of it."""

GC_THRESHOLD = 100_000
"""Imports make hundreds of thousands of objects that stay; walking them again and again is a fifth of a command."""

INTERRUPTED = 130
"""What shells expect of a program that Ctrl-C ended."""


def main() -> None:
    """Run the command line; whatever goes wrong ends it with one line and an exit code, never with a traceback."""
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    try:
        from gangline.cli.app import app

        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in SERVER_PACKAGES:
            _end(_unexpected(error), 1)
        _end(f"{package} is not installed: pip install 'gangline[server]'", UsageError.exit_code)
    except GanglineError as error:
        _end(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read has read enough, as `head` does; nothing is left to be told, at exit neither.
        sys.stdout = None  # so that the interpreter does not flush it again
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - the last resort of the command line
        _end(_unexpected(error), 1)


def _unexpected(error: Exception) -> str:
    """Write the details of a failure that nobody foresaw to a file, and return a line that names it."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="gangline-", suffix=".txt", delete=False) as details:
        details.write(f"{sys.argv}\n\n{traceback.format_exc()}")
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {first} (this was not foreseen; the details are in {details.name})"


def _end(message: str, code: int) -> None:
    print(f"gangline: {message}", file=sys.stderr)
    sys.exit(code)
