"""`gangline forecast SPEC`: what would happen if this were submitted now; it takes what `gangline submit` takes."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from gangline.cli.place import Place
from gangline.cli.submit import COMMAND, CommandAfterDashes, asked_of, submit
from gangline.schemas.errors import UsageError

if TYPE_CHECKING:
    from gangline.simulator.forecast import Forecast

HORIZON = "7d"
MAX_HORIZON = "30d"
"""Of what is submitted and fails until then nobody knows; and a busy cluster's month takes minutes."""

HorizonOption = Annotated[str, typer.Option(help="How far ahead to look, as in 12h; 30d at most.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    options = {"cls": CommandAfterDashes, "options_metavar": "[OPTIONS] [-- COMMAND...]"}
    app.command("forecast", **options)(forecast)  # type: ignore[arg-type] # typer's own types are not exported


def forecast(**options: Any) -> None:  # noqa: ANN401 - the options of `submit`, whose signature it is given below
    """Say what would happen if a job were submitted now: refused, started and where, whom it evicts, or when it starts.

    Example: gangline forecast --gpus 8 --max-runtime 2h
    """
    from gangline.cli.commands import new_meta
    from gangline.cli.moments import moment
    from gangline.cli.output import print_json
    from gangline.simulator.forecast import forecast as forecast_of

    context = options["context"]
    if options["spec"] is None:
        # What it runs makes no difference to when it would.
        context.meta.setdefault(COMMAND, ["true"])
    asked = asked_of(context, options["spec"], options)
    horizon_us = _horizon_us(options["horizon"])
    with moment(Place(options["home"], log=options["log"]), None) as now, _Progress(horizon_us) as progress:
        found = forecast_of(
            now.state, asked.spec, actor=new_meta().actor, horizon_us=horizon_us, progress=progress.tell
        )
    if options["json"]:
        print_json(found)
    else:
        _show(found)
    if found.outcome == "refused":
        raise typer.Exit(4)


def _signature() -> inspect.Signature:
    """Return that of `submit`, with a horizon in the place of the time that it waits for its answer."""
    known = inspect.signature(submit)
    horizon = inspect.Parameter("horizon", inspect.Parameter.KEYWORD_ONLY, default=HORIZON, annotation=HorizonOption)
    return known.replace(parameters=[horizon if name == "timeout" else one for name, one in known.parameters.items()])


forecast.__signature__ = _signature()  # type: ignore[attr-defined] # typer reads the options from it
forecast.__annotations__ = {name: one.annotation for name, one in _signature().parameters.items()} | {"return": None}


def _horizon_us(text: str) -> int:
    from gangline.cli.units import parse_duration_us

    try:
        horizon_us = parse_duration_us(text)
    except ValueError as error:
        raise UsageError(f"--horizon {text}: {error}") from error
    if not 0 < horizon_us <= parse_duration_us(MAX_HORIZON):
        raise UsageError(f"--horizon {text}: name a time above 0 and up to {MAX_HORIZON}")
    return horizon_us


class _Progress:
    """A bar of the virtual time, on a terminal only."""

    def __init__(self, horizon_us: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal)
        self._task = self._bar.add_task("going on in virtual time", total=horizon_us)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, after_us: int) -> None:
        """Show how far time has gone."""
        self._bar.update(self._task, completed=after_us)


def _show(found: "Forecast") -> None:
    from gangline.cli.output import print_fields, printable
    from gangline.cli.units import show_duration

    print(printable(_sentence(found)))
    waits = found.waits
    fields: dict[str, object] = {"on": ", ".join(found.nodes) or None}
    if found.evicted:
        told = [f"{one.job_id} ({one.name}, queue {one.queue}: {one.reason})" for one in found.evicted]
        fields["evicts"] = ", ".join(told)
    if found.ended_before:
        fields["after"] = f"the end of {', '.join(found.ended_before)}"
    if waits is not None:
        fields["why not now"] = waits.text
        fields["soonest"] = None if waits.change is None else waits.change.text
    fields["rests on"] = "; ".join(found.rests) or None
    if found.outcome == "never":
        fields["looked"] = f"{show_duration(found.horizon_us)} ahead"
    known = {name: value for name, value in fields.items() if value is not None}
    if known:
        print_fields(known)


def _sentence(found: "Forecast") -> str:
    from gangline.cli.units import show_duration

    if found.outcome == "refused":
        return f"it would be refused: {found.message}"
    if found.outcome == "starts":
        return "it would start at once"
    if found.outcome == "never":
        ended = f": it would end ({found.message})" if found.message else ""
        return f"it would not start within {show_duration(found.horizon_us)}{ended}"
    after = show_duration(found.start_in_us or 0)
    if found.outcome == "evicts":
        return f"it would start in about {after}, when others have given way"
    return f"it would wait, and start in about {after}"
