"""How far an attempt of a virtual job is, and what happens to it next if nobody interferes."""

from typing import Literal, NamedTuple

from gangline.events.decisions import GangBound
from gangline.simulator.work import Failure, Work

Step = Literal["finished", "saved", "failed", "yielded", "killed"]
"""`yielded` has saved and gone as it was told to, `killed` has not come to save in its grace."""


class Next(NamedTuple):
    """What happens to an attempt next, when, and the work done and saved by then."""

    at_us: int
    step: Step
    progress_us: int


class Run:
    """A live attempt. Times are those of the simulation; progress is work done, in the job's own `work_us`."""

    __slots__ = (
        "accounted_us",
        "bound",
        "bound_us",
        "deadline_us",
        "failed_us",
        "failure",
        "generation",
        "gpus",
        "pending",
        "resumed_us",
        "saved_us",
        "shares_left",
        "work",
        "working_us",
    )

    def __init__(self, work: Work, bound: GangBound, at_us: int, failure: Failure | None) -> None:
        """Begin an attempt that was just bound, from the newest checkpoint that the binding names."""
        self.work = work
        self.bound = bound
        self.bound_us = at_us
        self.failure = failure
        self.gpus = sum(len(share.gpus) for share in bound.shares if not share.role)
        """Its own, without those of further roles; what works on CPUs alone works as if it had one."""
        self.resumed_us = self.saved_us = bound.resume[0].step if bound.resume else 0
        self.working_us = at_us + (work.restart_us if bound.attempt > 1 else 0)
        """Since when it works on from `saved_us`."""
        self.deadline_us: int | None = None
        """When its ranks are killed, once it was told to give way."""
        self.shares_left = list(dict.fromkeys(share.node_id for share in bound.shares))
        """Nodes where its ranks run."""
        self.generation = 0
        self.pending: Next | None = None
        self.failed_us: int | None = None
        self.accounted_us = at_us
        """Up to when it was told what this attempt did."""

    def progress_us(self, at_us: int) -> int:
        """Return the work done by then, if it was not interrupted and no save is due before."""
        done = max(at_us - self.working_us, 0) * max(self.gpus, 1) // max(self.work.spec.gpus, 1)
        return min(self.saved_us + done, self.work.work_us)

    def next(self) -> Next:
        """Return what happens next."""
        found = self._next()
        failure = self.failure
        if failure is not None and self.bound_us + failure.after_us < found.at_us:
            found = Next(self.bound_us + failure.after_us, "failed", self.saved_us)
        self.pending = found
        return found

    def give_way(self, at_us: int, grace_us: int) -> Next:
        """Take the order to save and go, and return what happens next; a save that is under way is enough."""
        saving_us = self._saving_us()
        save_us = self.work.save_us
        if saving_us is not None and at_us >= saving_us:
            end = Next(saving_us + save_us, "yielded", self.progress_us(saving_us))
        else:
            end = Next(at_us + save_us, "yielded", self.progress_us(at_us))
        if end.at_us > at_us + grace_us:
            end = Next(at_us + grace_us, "killed", self.saved_us)
        failure = self.failure
        if failure is not None and self.bound_us + failure.after_us < end.at_us:
            end = Next(self.bound_us + failure.after_us, "failed", self.saved_us)
        self.deadline_us = at_us + grace_us
        self.generation += 1
        self.pending = end
        return end

    def fail(self, at_us: int) -> None:
        """Let nothing further happen of itself: the attempt is over but for the ranks that are left."""
        self.generation += 1
        self.pending = None
        if self.failed_us is None:
            self.failed_us = at_us

    def save(self, saved: Next) -> None:
        """Go on working behind a save."""
        self.saved_us = saved.progress_us
        self.working_us = saved.at_us

    def _next(self) -> Next:
        saving_us = self._saving_us()
        if saving_us is not None:
            return Next(saving_us + self.work.save_us, "saved", self.progress_us(saving_us))
        return Next(self._finish_us(), "finished", self.work.work_us)

    def _finish_us(self) -> int:
        left = (self.work.work_us - self.saved_us) * max(self.work.spec.gpus, 1)
        return self.working_us - (-left // max(self.gpus, 1))

    def _saving_us(self) -> int | None:
        """When the next save begins; None if it ends before."""
        interval_us = self.work.save_interval_us
        if interval_us is None or self.working_us + interval_us >= self._finish_us():
            return None
        return self.working_us + interval_us


Kind = Literal["restarting", "working", "saving", "lost"]
"""What an attempt's GPUs are busy with."""


class Segment(NamedTuple):
    """A time in which all GPUs of an attempt did one thing."""

    kind: Kind
    from_us: int
    to_us: int


def segments(run: Run, step: Next, since_us: int) -> list[Segment]:
    """Return what an attempt did from `since_us` to a step. What was not saved when it failed is lost."""
    found = []
    if since_us < run.working_us:
        found.append(Segment("restarting", since_us, min(run.working_us, step.at_us)))
    if step.at_us <= run.working_us:
        return found
    if step.step in ("saved", "yielded"):
        saving_us = max(step.at_us - run.work.save_us, run.working_us)
        found.append(Segment("working", run.working_us, saving_us))
        found.append(Segment("saving", saving_us, step.at_us))
    else:
        kind: Kind = "working" if step.step == "finished" else "lost"
        found.append(Segment(kind, run.working_us, step.at_us))
    return found
