"""Compares what came of a scenario with what it expects."""

from collections.abc import Iterator, Mapping, Sequence

from gangline.events.decisions import GangBound, PreemptionOrdered, RuntimeWarned
from gangline.events.types import Value
from gangline.scheduler.explain import explain
from gangline.simulator.scenario import Expectation, Path, Scenario
from gangline.simulator.scenario_outcome import (
    Outcome,
    Seen,
    answers,
    causes,
    endings,
    of_kind,
    placement,
    standing,
)
from gangline.simulator.work import SECOND_US


class Complaint(Value, frozen=True, kw_only=True):
    """Something that came out otherwise than expected; `path` is the expectation in the file."""

    path: Path
    message: str


def check(outcome: Outcome) -> list[Complaint]:
    """Return everything that came out otherwise than expected, in the order of the file."""
    found = [*_commands(outcome), *_rejections(outcome)]
    for expectation in outcome.scenario.expectations:
        found += _check(outcome, expectation)
    return found


def expects_something(scenario: Scenario) -> bool:
    """Whether there is anything to check."""
    said = [one.refused for one in scenario.happenings] + [one.rejected for one in scenario.jobs]
    return bool(scenario.expectations) or any(one is not None for one in said)


def _commands(outcome: Outcome) -> Iterator[Complaint]:
    said = answers(outcome.rounds)
    for command_id, happening in outcome.commands.items():
        if command_id not in said:
            yield Complaint(path=(*happening.path, "do"), message="no round has answered this by the end")
            continue
        yield from _compared(happening.path, "refused", happening.refused, said[command_id], outcome)


def _rejections(outcome: Outcome) -> Iterator[Complaint]:
    ends = outcome.rejected_before | endings(outcome.rounds, outcome.names)
    for job in outcome.scenario.jobs:
        how, why = ends.get(job.name, ("", ""))
        yield from _compared(job.path, "rejected", job.rejected, why if how == "rejected" else None, outcome)


def _compared(path: Path, key: str, expected: str | None, said: str | None, outcome: Outcome) -> Iterator[Complaint]:
    said = None if said is None else outcome.told(said)
    if expected is None and said is not None:
        yield Complaint(path=path, message=f"this was {key}: {said}")
    elif expected is not None and said is None:
        yield Complaint(path=(*path, key), message="this was not refused, but accepted")
    elif expected is not None and said is not None and expected not in said:
        yield Complaint(path=(*path, key), message=f"the refusal says otherwise: {said}")


class _Point:
    """What an expectation is compared with: all rounds up to its time."""

    def __init__(self, outcome: Outcome, rounds: Sequence[Seen]) -> None:
        self.outcome = outcome
        self.rounds = rounds
        self.state = rounds[-1].state
        self.ends = outcome.rejected_before | endings(rounds, outcome.names)

    def job_id(self, name: str) -> str:
        job = self.outcome.named.get(name)
        return "" if job is None else job.job_id

    def what(self, name: str) -> str:
        job = self.state.jobs.get(self.job_id(name))
        if job is None:
            return self.ends[name][0] if name in self.ends else "not submitted"
        return standing(job)

    def shares(self, name: str) -> tuple[str, ...]:
        return placement(self.state.jobs.get(self.job_id(name)))

    def why(self, name: str) -> str:
        if self.job_id(name) not in self.state.jobs:
            return self.outcome.told(self.ends[name][1] if name in self.ends else "it is not submitted")
        return self.outcome.told(explain(self.state, self.job_id(name)))

    def names(self, job_ids: Sequence[str]) -> list[str]:
        names = self.outcome.names
        return [names[job_id] for job_id in job_ids]


def _check(outcome: Outcome, expected: Expectation) -> Iterator[Complaint]:
    rounds = outcome.until(expected.at_us)
    if not rounds:
        yield Complaint(path=expected.path, message="no round was decided by then")
        return
    point = _Point(outcome, rounds)
    for check_part in (_states, _places, _victims, _texts, _order, _room):
        for key, message in check_part(point, expected):
            yield Complaint(path=(*expected.path, *key), message=message)


Found = Iterator[tuple[Path, str]]


def _states(point: _Point, expected: Expectation) -> Found:
    wanted: list[tuple[Path, str, str]] = []
    wanted += [(("runs",), name, "running") for name in expected.runs]
    wanted += [(("waits",), name, "pending") for name in expected.waits]
    wanted += [(("stops",), name, "stopping") for name in expected.stops]
    wanted += [(("ended", name), name, outcome) for name, outcome in expected.ended]
    for key, name, what in wanted:
        found = point.what(name)
        if found != what:
            yield key, f"{name} is {found}, not {what}: {point.why(name)}"
    for name, count in expected.attempts:
        job = point.state.jobs.get(point.job_id(name))
        if job is None or job.attempts != count:
            yield ("attempts", name), f"{name} has had {job.attempts if job else 'no'} attempts, not {count}"


def _places(point: _Point, expected: Expectation) -> Found:
    for name, wanted in expected.where:
        found = point.shares(name)
        shown = [share if ":" in want else share.partition(":")[0] for share, want in zip(found, wanted, strict=False)]
        if len(found) != len(wanted) or list(wanted) != shown:
            where = " ".join(found) or f"nowhere, it is {point.what(name)}: {point.why(name)}"
            yield ("where", name), f"{name} is on {where}, not on {' '.join(wanted)}"
    for name, wanted_step in expected.resumes:
        job = point.state.jobs.get(point.job_id(name))
        resume = () if job is None or job.attempt is None else job.attempt.bound.resume
        step = resume[0].step if resume else 0
        if step != wanted_step:
            yield ("resumes", name), f"{name} resumes with {step // SECOND_US} s done, not {wanted_step // SECOND_US} s"


def _victims(point: _Point, expected: Expectation) -> Found:
    orders = [one for seen in point.rounds for one in seen.decisions if isinstance(one, PreemptionOrdered)]
    victims = point.names(of_kind(point.rounds, PreemptionOrdered))
    if expected.victims is not None and sorted(set(victims)) != sorted(expected.victims):
        yield ("victims",), f"those told to give way are {_listed(dict.fromkeys(victims))}"
    names = point.outcome.names
    for name, wanted in expected.reasons:
        last = next((one for one in reversed(orders) if names[one.job_id] == name), None)
        if last is None:
            yield ("reasons", name), f"{name} was not told to give way"
            continue
        said = last.reason if last.claimant is None else f"{last.reason} for {names[last.claimant]}"
        if wanted not in (said, last.reason):
            yield ("reasons", name), f"{name} gave way by {said}, not by {wanted}"
    for name, count in expected.preemptions:
        if victims.count(name) != count:
            yield ("preemptions", name), f"{name} was told to give way {victims.count(name)} times, not {count}"
    warned = point.names(of_kind(point.rounds, RuntimeWarned))
    if expected.warned is not None and sorted(set(warned)) != sorted(expected.warned):
        yield ("warned",), f"those warned are {_listed(dict.fromkeys(warned))}"


def _texts(point: _Point, expected: Expectation) -> Found:
    for name, texts in expected.why:
        said = point.why(name)
        for text in texts:
            if text not in said:
                yield ("why", name), f"{text!r} is not in what is said of {name}: {said}"
    found = causes(point.rounds, point.outcome.names)
    for name, text in expected.causes:
        cause = point.outcome.told(found.get(name, "it neither came back nor ended"))
        if text not in cause:
            yield ("causes", name), f"{text!r} is not in the cause: {cause}"


def _order(point: _Point, expected: Expectation) -> Found:
    started = list(dict.fromkeys(point.names(of_kind(point.rounds, GangBound))))
    found = [name for name in started if name in expected.order]
    if found != list(expected.order):
        yield ("order",), f"they started in the order {_listed(found)}"


def _room(point: _Point, expected: Expectation) -> Found:
    for name, nodes in expected.held:
        room = point.state.room.get(point.job_id(name))
        found = () if room is None else tuple(share.node_id for share in room.shares)
        if sorted(set(found)) != sorted(nodes):
            yield ("held", name), f"held for {name} is {_listed(found)}"
    for name, nodes in expected.reserved:
        reserved = point.state.reserved.get(point.job_id(name))
        found = () if reserved is None else reserved.node_ids
        if sorted(found) != sorted(nodes):
            yield ("reserved", name), f"reserved for {name} is {_listed(found)}"
    if expected.quarantined is not None:
        state = point.state
        out = [node_id for node_id in state.node_order if state.nodes[node_id].quarantined]
        if sorted(out) != sorted(expected.quarantined):
            yield ("quarantined",), f"quarantined is {_listed(out)}"


def _listed(names: Sequence[str] | Mapping[str, None]) -> str:
    return ", ".join(names) or "nobody"
