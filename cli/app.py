"""The commands of `gangline`, put together."""

from typing import Annotated

import typer

from gangline.cli import (
    doctor,
    events_tail,
    forecast,
    job,
    node,
    parts,
    policy,
    queue,
    queues,
    reads,
    simulate,
    submit,
    up,
    why,
)

app = typer.Typer(
    no_args_is_help=True,
    help="An ML training platform built on a log. `gangline up` runs everything on this machine.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    """Print the version and exit, if wanted."""
    if wanted:
        from importlib.metadata import version

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


for module in (
    up,
    submit,
    reads,
    job,
    why,
    forecast,
    node,
    queue,
    queues,
    policy,
    events_tail,
    doctor,
    simulate,
    parts,
):
    module.register(app)
