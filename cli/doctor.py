"""`gangline doctor`: what is wrong with this deployment, and how to mend it."""

from typing import Annotated

import typer

from gangline.cli.output import GREEN, RED, YELLOW, paint, print_json
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption

MARKS = {"ok": ("ok", GREEN), "warning": ("!!", YELLOW), "wrong": ("XX", RED)}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    *,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is not well.")] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Say what is wrong with a deployment and how to mend it; exit with 1 if anything is.

    Example: gangline doctor
    """
    from gangline.cli.examination import examine

    findings = examine(Place(home, log=log, sql=sql))
    if json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            if quiet and finding.status == "ok":
                continue
            mark, colour = MARKS[finding.status]
            print(f"{paint(mark, colour)}  {finding.what}: {finding.found}")
            if finding.mend:
                print(f"    {finding.mend}")
    if any(finding.status == "wrong" for finding in findings):
        raise typer.Exit(1)
