"""What people are told of their jobs: the history of the log, folded into notices.

A job starts when ranks of its attempt first run. Of an array the first start, the first failure and its end are told,
each once: nobody wants ten thousand messages.
"""

from msgspec.structs import replace

from gangline.agents.notifier.notice import Kind, Known, Notice, gave_way, places, verb
from gangline.events import ids
from gangline.events.control import RanksStarted, SubmitJob
from gangline.events.decisions import (
    AnswerRepeated,
    AttemptPreempted,
    CommandExpired,
    GangBound,
    JobAdmitted,
    JobEnded,
    JobRejected,
    JobRequeued,
)
from gangline.events.history import Segment
from gangline.events.types import Decision


class Ledger:
    """The jobs that have not ended. `changed` names those to be stored, with None for what is to be forgotten."""

    def __init__(self, log_id: str, jobs: dict[str, Known]) -> None:
        self.log_id = log_id
        self.jobs = jobs
        self.changed: dict[str, Known | None] = {}

    def fold(self, segment: Segment) -> list[tuple[Notice, Known]]:
        """Take a round in; return what is to be told, each with its job."""
        found: list[tuple[Notice, Known]] = []
        for record, event in segment.inputs:
            if isinstance(event, SubmitJob):
                self._submitted(event)
            elif isinstance(event, RanksStarted):
                found += self._started(event, record.index)
        for ordinal, decision in enumerate(segment.decisions):
            found += self._decided(decision, segment, ordinal)
        return found

    def _put(self, job_id: str, known: Known | None) -> None:
        if known is None:
            self.jobs.pop(job_id, None)
        else:
            self.jobs[job_id] = known
        self.changed[job_id] = known

    def _submitted(self, event: SubmitJob) -> None:
        if event.meta.command_id is None:
            return
        job_id = ids.job_id(self.log_id, event.meta.command_id)
        if job_id not in self.jobs:
            spec, user = event.spec, event.meta.actor.removeprefix("user:")
            known = Known(name=spec.name, queue=spec.queue, user=user, notify=spec.notify, tasks_left=spec.array)
            self._put(job_id, known)

    def _started(self, event: RanksStarted, index: int) -> list[tuple[Notice, Known]]:
        known = self.jobs.get(event.job_id)
        if known is None or event.attempt <= known.started:
            return []
        known = replace(known, started=event.attempt, attempt=max(known.attempt, event.attempt))
        self._put(event.job_id, known)
        job_id, told = event.job_id, known
        if array := self._array_of(event.job_id):
            job_id, told = array
            if told.started:
                return []
            told = replace(told, started=1, attempt=1)
            self._put(job_id, told)
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        resumed = "" if known.resume_step is None else f", from its checkpoint of step {known.resume_step}"
        what = f"has started{again} on {places(known.nodes or (event.node_id,))}{resumed}"
        notice = Notice(
            event_id=event.meta.event_id.hex(),
            kind="started",
            log_id=self.log_id,
            index=index,
            at_us=event.meta.at_us,
            job_id=job_id,
            name=told.name,
            queue=told.queue,
            user=told.user,
            attempt=event.attempt,
            nodes=known.nodes or (event.node_id,),
            resume_step=known.resume_step,
            text=f"{told.name} ({job_id}) {what}",
        )
        return [(notice, told)]

    def _decided(self, decision: Decision, segment: Segment, ordinal: int) -> list[tuple[Notice, Known]]:
        match decision:
            case JobAdmitted() if (known := self.jobs.get(decision.job_id)) is not None:
                self._put(decision.job_id, replace(known, admitted=True))
            case JobRejected() | CommandExpired() | AnswerRepeated():
                job_id = ids.job_id(self.log_id, decision.command_id)
                if job_id in self.jobs and not self.jobs[job_id].admitted:
                    self._put(job_id, None)
            case GangBound():
                self._bound(decision)
            case JobEnded() if decision.job_id not in self.jobs and (array := self._array_of(decision.job_id)):
                return self._task_ended(decision, array, segment, ordinal)  # it never ran
            case AttemptPreempted() | JobRequeued() | JobEnded() if decision.job_id in self.jobs:
                return self._told(decision, self.jobs[decision.job_id], segment, ordinal)
            case _:
                pass
        return []

    def _bound(self, bound: GangBound) -> None:
        known = self.jobs.get(bound.job_id)
        if known is None and (array := self._array_of(bound.job_id)):
            known = replace(array[1], tasks_left=None, tasks_failed=0, started=0)
        if known is not None:
            nodes = tuple(dict.fromkeys(share.node_id for share in bound.shares))
            resume_step = bound.resume[0].step if bound.resume else None
            self._put(bound.job_id, replace(known, attempt=bound.attempt, nodes=nodes, resume_step=resume_step))

    def _told(
        self, decision: AttemptPreempted | JobRequeued | JobEnded, known: Known, segment: Segment, ordinal: int
    ) -> list[tuple[Notice, Known]]:
        job_id = decision.job_id
        array = self._array_of(job_id)
        kind: Kind = "ended"
        outcome: str | None = None
        reason: str | None = None
        if isinstance(decision, JobEnded):
            outcome = decision.outcome
            what = f"has {verb(outcome)}" + ("" if decision.cause == outcome else f": {decision.cause}")
            self._put(job_id, None)
            if array:
                return self._task_ended(decision, array, segment, ordinal)
        elif array:
            return []
        elif isinstance(decision, AttemptPreempted):
            kind, reason = "preempted", decision.reason
            what = f"{gave_way(decision.reason)}: {decision.cause}"
        else:
            if any(isinstance(one, AttemptPreempted) and one.job_id == job_id for one in segment.decisions):
                return []  # that it was preempted is told already
            kind, what = "failed", f"failed in attempt {decision.attempt} and will be tried again: {decision.cause}"
        notice = self._notice(
            segment,
            ordinal,
            kind=kind,
            job_id=job_id,
            known=known,
            attempt=known.attempt,
            outcome=outcome,
            reason=reason,
            cause=decision.cause,
            nodes=known.nodes,
            what=what,
        )
        return [(notice, known)]

    def _task_ended(
        self, decision: JobEnded, array: tuple[str, Known], segment: Segment, ordinal: int
    ) -> list[tuple[Notice, Known]]:
        """Count a job of an array; tell its first failure, and the end of all."""
        array_id, told = array
        failed = decision.outcome != "succeeded"
        left = (told.tasks_left or 1) - 1
        told = replace(told, tasks_left=left, tasks_failed=told.tasks_failed + failed)
        self._put(array_id, told if left else None)
        if not left:
            ended = "failed" if told.tasks_failed else "succeeded"
            count = told.tasks_failed
            cause = f"{count} of its jobs did not succeed" if count else "all of its jobs have succeeded"
            what = f"has {verb(ended)}: {cause}"
        elif failed and told.tasks_failed == 1:
            what = f"has a job that has {verb(decision.outcome)}, {decision.job_id}: {decision.cause}"
            ended, cause = None, f"{decision.job_id}: {decision.cause}"
        else:
            return []
        kind: Kind = "failed" if left else "ended"
        notice = self._notice(
            segment,
            ordinal,
            kind=kind,
            job_id=array_id,
            known=told,
            attempt=decision.attempts,
            outcome=ended,
            cause=cause,
            what=what,
        )
        return [(notice, told)]

    def _notice(
        self,
        segment: Segment,
        ordinal: int,
        *,
        kind: Kind,
        job_id: str,
        known: Known,
        attempt: int,
        cause: str,
        what: str,
        outcome: str | None = None,
        reason: str | None = None,
        nodes: tuple[str, ...] = (),
    ) -> Notice:
        tick = segment.round.tick_index
        return Notice(
            event_id=ids.derived(self.log_id, tick, f"notice/{ordinal}").hex(),
            kind=kind,
            log_id=self.log_id,
            index=tick,
            at_us=segment.round.meta.at_us,
            job_id=job_id,
            name=known.name,
            queue=known.queue,
            user=known.user,
            attempt=attempt,
            outcome=outcome,
            reason=reason,
            cause=cause,
            nodes=nodes,
            text=f"{known.name} ({job_id}) {what}",
        )

    def _array_of(self, job_id: str) -> tuple[str, Known] | None:
        """Return the array that a job belongs to, if it is of one."""
        array_id = job_id.rpartition(".")[0]
        known = self.jobs.get(array_id) if array_id else None
        return None if known is None else (array_id, known)
