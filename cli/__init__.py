"""The `gangline` command: parse, call, print."""

import sys

from gangline.schemas.errors import GanglineError, UsageError

__all__ = ["main"]

SERVER_PACKAGES = frozenset(
    "apsw boto3 botocore chdb clickhouse_connect confluent_kafka fastavro immutables numpy psutil psycopg pynvml "
    "sqlalchemy typer".split()
)
"""What the extra `server` brings, by import name; a base install, as in a training image, has none of it."""


def main() -> None:
    """Run the command line; an error made for users ends it with one line and the error's exit code."""
    try:
        from gangline.cli.app import app

        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in SERVER_PACKAGES:
            raise
        print(f"gangline: {package} is not installed: pip install 'gangline[server]'", file=sys.stderr)
        sys.exit(UsageError.exit_code)
    except GanglineError as error:
        print(f"gangline: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
