"""A job of the simulated cluster: what it has waited, run and suffered so far."""

from gangline.simulator.run import Run
from gangline.simulator.work import Work


class VirtualJob:
    """One job's life as its user sees it. Waiting runs from submission, or from the end of an attempt, to a binding."""

    __slots__ = (
        "cause",
        "ended_us",
        "first_start_us",
        "job_id",
        "outcome",
        "preemptions",
        "run",
        "waited_us",
        "waiting_us",
        "work",
    )

    def __init__(self, work: Work) -> None:
        """Begin before the job is submitted."""
        self.work = work
        self.job_id = ""
        self.run: Run | None = None
        self.waiting_us: int | None = None
        """Since when it waits; None while it runs or is over."""
        self.waited_us = 0
        """In all, until it last stopped waiting."""
        self.first_start_us: int | None = None
        self.preemptions = 0
        self.ended_us: int | None = None
        self.outcome: str | None = None
        self.cause = ""

    def waits(self, at_us: int) -> None:
        """Note that it waits from now on."""
        self.waiting_us = at_us

    def starts(self, at_us: int) -> None:
        """Note that it got its gang."""
        if self.waiting_us is not None:
            self.waited_us += at_us - self.waiting_us
        self.waiting_us = None
        if self.first_start_us is None:
            self.first_start_us = at_us

    def ends(self, at_us: int, outcome: str, cause: str) -> None:
        """Note that nothing of it will run again."""
        self.waiting_us = None
        self.ended_us = at_us
        self.outcome = outcome
        self.cause = cause
