"""The commands of `gangline`, put together."""

from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="An ML training platform built on a log.")


def show_version(wanted: bool) -> None:
    """Print the version and exit, if wanted."""
    if wanted:
        typer.echo(version("gangline"))
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""
