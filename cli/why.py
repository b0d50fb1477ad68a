"""`gangline why JOB` and `gangline why-not JOB NODE`: asks the core, of the state that the log gives at any moment."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.job import JOB_ID_CHARACTERS, JobArgument, look_up
from gangline.cli.moments import AtOption, Moment, moment
from gangline.cli.place import HomeOption, JsonOption, LogOption, Place, SqlOption
from gangline.schemas.errors import NotFound

if TYPE_CHECKING:
    from gangline.scheduler.explanation.values import Explanation
    from gangline.scheduler.history_store import OtherCode, Story

MAX_LISTED = 5


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("why")(why)
    app.command("why-not")(why_not)


def why(
    *,
    job: JobArgument,
    at: AtOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Say why a job waits and what would change it soonest, why it runs where it does, or why it gave way or ended.

    Example: gangline why job-k3x7 --at 10m
    """
    from gangline.scheduler.history_store import OtherCode

    place = Place(home, log=log, sql=sql)
    job_id = _whole_id(place, job)
    try:
        _tell(place, job_id, at, as_json=json)
    except OtherCode as error:
        _tell_story(place, job_id, error, as_json=json)


def _tell(place: Place, job_id: str, at: str | None, *, as_json: bool) -> None:
    from gangline.cli.output import print_json
    from gangline.scheduler.explain import explanation
    from gangline.scheduler.history_store import story_of

    with moment(place, at) as then:
        found = explanation(then.state, job_id)
        story = story_of(then.log, job_id, then.through)
        if found.standing == "unknown" and not story.told:
            when = "" if then.through is None else f" by index {then.through}"
            raise NotFound(f"no job '{job_id}' was admitted{when}: `gangline jobs` lists those there are")
        placed: list[str] = []
        if found.standing != "pending" and story.bound is not None:
            placed = _placed(then, story)
        index, at_us = then.state.control_index, then.state.ticked_at_us
    if as_json:
        print_json(_document(found, story, placed, index, at_us))
        return
    _show(found, story, placed, index, at_us)


def _tell_story(place: Place, job_id: str, error: "OtherCode", *, as_json: bool) -> None:
    """Tell what was decided, which any version can read. Raises the error if nothing was."""
    from gangline.cli.output import print_json, say
    from gangline.scheduler.history_store import story_of

    log = place.open_log()
    try:
        story = story_of(log, job_id)
    finally:
        log.close()
    if not story.told:
        raise error
    say(f"gangline: {error}; this is what was decided")
    if as_json:
        print_json({"job_id": job_id, "history": _history(story)})
    else:
        _show_story(story)


def _placed(then: Moment, story: "Story") -> list[str]:
    """Return why the job was placed where it was; what another version decided is only told as it was decided."""
    from gangline.scheduler.history_store import OtherCode, why_bound_there

    if story.bound is None:
        return []
    try:
        return why_bound_there(then.log, then.store, then.code_digest, story.bound)
    except OtherCode:
        return []


def explained(place: Place, job_id: str) -> str | None:
    """Return what keeps a job waiting now, in a sentence or two; None where another version decides."""
    from gangline.scheduler.explain import explain
    from gangline.scheduler.history_store import OtherCode

    try:
        with moment(place, None) as now:
            return explain(now.state, job_id)
    except OtherCode:
        return None


def why_not(
    *,
    job: JobArgument,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name, as `gangline nodes` shows it.")],
    at: AtOption = None,
    json: JsonOption = False,
    home: HomeOption = None,
    log: LogOption = None,
    sql: SqlOption = None,
) -> None:
    """Say whether a node could hold a job, or its part of it, and each reason why it does not.

    Example: gangline why-not job-k3x7 node-7
    """
    from gangline.cli.output import print_json, printable
    from gangline.scheduler import explain

    place = Place(home, log=log, sql=sql)
    job_id = _whole_id(place, job)
    with moment(place, at) as then:
        state = then.state
        if node not in state.nodes:
            known = ", ".join(state.node_order[:MAX_LISTED]) or "none"
            raise NotFound(f"there is no node '{node}': those there are: {known}")
        if job_id not in state.jobs:
            said = explain.explain(state, job_id)
            raise NotFound(said if job_id in said else f"{job_id}: {said}")
        one = state.jobs[job_id]
        runs = one.attempt is not None and any(share.node_id == node for share in one.attempt.bound.shares)
        reasons = () if runs else explain.why_not(state, job_id, node)
    if json:
        could = not reasons and not runs
        told = [{"kind": reason.kind, "text": reason.text} for reason in reasons]
        print_json({"job_id": job_id, "node_id": node, "runs_there": runs, "could_hold": could, "reasons": told})
        return
    if runs:
        print(printable(f"{job_id} is on {node}"))
    elif not reasons:
        print(printable(f"{node} could hold {job_id}, or a part of it"))
    else:
        print(printable(f"{node} does not take {job_id}:"))
        for reason in reasons:
            print(printable(f"- {reason.text}"))


def _whole_id(place: Place, job: str) -> str:
    """Return the id of a job that begins so; a whole one needs no tables."""
    if len(job) >= JOB_ID_CHARACTERS:
        return job
    return str(look_up(place, job)["job_id"])


def _document(found: "Explanation", story: "Story", placed: list[str], index: int, at_us: int) -> dict[str, Any]:
    import msgspec

    document = {"index": index, "at_us": at_us, "placed": placed, "history": _history(story)}
    return {**msgspec.to_builtins(found), **document}


def _history(story: "Story") -> list[dict[str, Any]]:
    return [
        {"index": one.tick_index, "at_us": one.at_us, "decision": one.chapter.kind, "text": one.chapter.text}
        for one in story.told
    ]


def _show(found: "Explanation", story: "Story", placed: list[str], index: int, at_us: int) -> None:
    from gangline.cli.output import print_fields
    from gangline.cli.units import show_time

    last = story.told[-1].chapter.text if story.told else ""
    ahead = ", ".join(found.before)
    if found.before_count > len(found.before):
        ahead += f" and {found.before_count - len(found.before)} more"
    print_fields(
        {
            "job": found.job_id,
            "as of": f"{index} ({show_time(at_us)})",
            "state": found.standing if found.standing != "unknown" else "ended",
            "held by": _RULES.get(found.rule) if found.rule else None,
            "why": last if found.standing in {"ended", "unknown"} else found.text,
            "nodes": ", ".join(one.text for one in found.nodes) or None,
            "before it": ahead or None,
            "soonest": None if found.change is None else found.change.text,
            "placed": "; ".join(placed) or None,
            "besides": "; ".join(found.notes) or None,
        }
    )
    if story.told:
        print()
        _show_story(story)


def _show_story(story: "Story") -> None:
    from gangline.cli.output import BOLD, paint, print_table
    from gangline.cli.units import show_time

    print(paint("DECIDED", BOLD))
    rows = [(one.tick_index, show_time(one.at_us), one.chapter.text) for one in story.told]
    print_table(("index", "time", "what"), rows)


_RULES = {
    "held": "its user",
    "after": "other jobs, which have to succeed first",
    "array": "the bound of its array",
    "storage": "storage that is nearly full",
    "upload": "a checkpoint that is being stored",
    "claim": "others, which have to leave what is held for it",
    "quota": "quota",
    "order": "the order",
    "nodes": "room on the nodes",
    "ports": "nothing, but its turn",
}
