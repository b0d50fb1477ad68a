"""What came of a scenario: after each round every job's state, placement and reason, who gave way, what was refused.

Jobs are called by the names that the scenario gives them, also in the texts of the core.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from gangline.events import ids
from gangline.events.decisions import (
    Answer,
    CommandExpired,
    CommandRefused,
    GangBound,
    JobEnded,
    JobRejected,
    JobRequeued,
    PolicyRefused,
    PreemptionOrdered,
    RuntimeWarned,
)
from gangline.events.types import Decision, Share, Value
from gangline.scheduler.explain import explain
from gangline.scheduler.state import Job, State
from gangline.simulator.scenario import Happening, Scenario
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import SECOND_US

_JOB_ID = re.compile(r"job-[a-z2-7]{12}(?:\.\d+)?")


class JobView(Value, frozen=True, kw_only=True):
    """A job just after a round."""

    name: str
    state: str
    """`pending`, `running`, `stopping`, or how it ended."""
    attempts: int
    placement: tuple[str, ...]
    """Its shares in rank order: node:GPUs."""
    reason: str


class Victim(Value, frozen=True, kw_only=True):
    """A job told to give way in a round."""

    name: str
    reason: str
    claimant: str | None


class RoundView(Value, frozen=True, kw_only=True):
    """What is so just after a round, or just after all of one second."""

    at_s: int
    """From the beginning."""
    jobs: tuple[JobView, ...]
    victims: tuple[Victim, ...]
    held: dict[str, tuple[str, ...]]
    """By claimant: its shares."""
    reserved: dict[str, tuple[str, ...]]
    """By gang: the nodes that wait for it."""
    refused: tuple[str, ...]
    """What the core said to commands that it refused."""


class Seen(Value, frozen=True, kw_only=True):
    """What was decided at a time, and the state behind it."""

    at_us: int
    state: State
    decisions: tuple[Decision, ...]


class Outcome:
    """All rounds of a scenario, from its beginning to its end."""

    def __init__(self, scenario: Scenario, named: Mapping[str, VirtualJob]) -> None:
        self.scenario = scenario
        self.rounds: list[Seen] = []
        self.commands: dict[bytes, Happening] = {}
        """What happened as a command, by its id."""
        self.named = named
        self.rejected_before: dict[str, tuple[str, str]] = {}
        """How jobs ended that were rejected before the beginning, and why, by their names."""

    def add(self, at_us: int, state: State, decisions: Sequence[Decision]) -> None:
        """Keep a round."""
        self.rounds.append(Seen(at_us=at_us, state=state, decisions=tuple(decisions)))

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of jobs by their ids; to be read once the scenario is over, and all have theirs."""
        return {job.job_id: name for name, job in self.named.items() if job.job_id}

    def until(self, at_us: int) -> list[Seen]:
        """Return the rounds up to a time."""
        return [one for one in self.rounds if one.at_us <= at_us]

    def told(self, text: str) -> str:
        """Return a text of the core with the names of jobs in place of their ids."""
        names = self.names
        return _JOB_ID.sub(lambda found: names.get(found[0], found[0]), text)

    def views(self) -> Iterator[RoundView]:
        """Return what is shown of every round."""
        ends = dict(self.rejected_before)
        for seen in self.rounds:
            ends |= endings([seen], self.names)
            yield self._view(seen, ends)

    def _view(self, last: Seen, ends: Mapping[str, tuple[str, str]]) -> RoundView:
        """Return what is shown of a round; `ends` are those of all rounds up to it."""
        names = self.names
        views = (self._job_view(last.state, name, ends) for name in self.named)
        victims = [one for one in last.decisions if isinstance(one, PreemptionOrdered)]
        refused = [
            one.message for one in last.decisions if isinstance(one, CommandRefused | PolicyRefused | JobRejected)
        ]
        return RoundView(
            at_s=last.at_us // SECOND_US,
            jobs=tuple(view for view in views if view is not None),
            victims=tuple(
                Victim(
                    name=names[one.job_id],
                    reason=one.reason,
                    claimant=None if one.claimant is None else names[one.claimant],
                )
                for one in victims
            ),
            held={names[room.job_id]: shown_shares(room.shares) for _, room in sorted(last.state.room.items())},
            reserved={names[one.job_id]: one.node_ids for _, one in sorted(last.state.reserved.items())},
            refused=tuple(self.told(message) for message in refused),
        )

    def _job_view(self, state: State, name: str, ends: Mapping[str, tuple[str, str]]) -> JobView | None:
        """Return what is shown of a job; None if it is not submitted yet, or is an array, whose jobs are shown."""
        job_id = self.named[name].job_id
        job = state.jobs.get(job_id)
        if job is None:
            if name not in ends:
                return None
            outcome, cause = ends[name]
            return JobView(name=name, state=outcome, attempts=0, placement=(), reason=self.told(cause))
        return JobView(
            name=name,
            state=standing(job),
            attempts=job.attempts,
            placement=placement(job),
            reason=self.told(explain(state, job_id)),
        )


def standing(job: Job) -> str:
    """Return what a job that has not ended is: `pending`, `running` or `stopping`."""
    if job.attempt is None:
        return "pending"
    return "stopping" if job.attempt.is_stopping else "running"


def placement(job: Job | None) -> tuple[str, ...]:
    """Return the shares of what runs of a job."""
    return () if job is None or job.attempt is None else shown_shares(job.attempt.bound.shares)


def endings(rounds: Sequence[Seen], names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return how jobs ended, and why, by their names."""
    found: dict[str, tuple[str, str]] = {}
    for seen in rounds:
        for one in seen.decisions:
            if isinstance(one, JobEnded):
                found[names[one.job_id]] = (one.outcome, one.cause)
            elif isinstance(one, JobRejected) and (name := _rejected(one, seen.state, names)) is not None:
                found[name] = ("rejected", one.message)
    return found


def _rejected(answer: JobRejected, state: State, names: Mapping[str, str]) -> str | None:
    return names.get(ids.job_id(state.log_id, answer.command_id))


def causes(rounds: Sequence[Seen], names: Mapping[str, str]) -> dict[str, str]:
    """Return why jobs were last requeued, or ended."""
    found = {}
    for seen in rounds:
        for one in seen.decisions:
            if isinstance(one, JobRequeued):
                found[names[one.job_id]] = one.cause
    return found | {name: cause for name, (_, cause) in endings(rounds, names).items()}


def of_kind(rounds: Sequence[Seen], kind: type[GangBound] | type[PreemptionOrdered] | type[RuntimeWarned]) -> list[str]:
    """Return the ids of the jobs of all decisions of a kind, in their order."""
    return [one.job_id for seen in rounds for one in seen.decisions if isinstance(one, kind)]


def answers(rounds: Sequence[Seen]) -> dict[bytes, str | None]:
    """Return what was said to each command: None if it was accepted, else why not."""
    found: dict[bytes, str | None] = {}
    for seen in rounds:
        for one in seen.decisions:
            if isinstance(one, CommandRefused | PolicyRefused | JobRejected):
                found[one.command_id] = one.message
            elif isinstance(one, CommandExpired):
                found[one.command_id] = "the command is too old"
            elif isinstance(one, Answer):
                found[one.command_id] = None
    return found


def shown_shares(shares: Sequence[Share]) -> tuple[str, ...]:
    """Return shares as `node:GPUs`, of a role as `role@node:GPUs`."""
    return tuple(
        (f"{share.role}@" if share.role else "") + share.node_id + (f":{shown_gpus(share.gpus)}" if share.gpus else "")
        for share in shares
    )


def shown_gpus(gpus: Sequence[int]) -> str:
    """Return indexes as 0-3,6."""
    parts: list[list[int]] = []
    for gpu in gpus:
        if parts and gpu == parts[-1][-1] + 1:
            parts[-1].append(gpu)
        else:
            parts.append([gpu])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
