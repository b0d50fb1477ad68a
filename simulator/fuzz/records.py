"""What the ledger keeps of shares, jobs and nodes."""

from typing import NamedTuple

from gangline.events import control, decisions
from gangline.events.types import JobSpec, Share

MAX_STEP_US = 5_000_000
"""Core time advances by at most this a tick."""


class Held:
    """A share of a binding that is not reported gone."""

    __slots__ = ("attempt", "job_id", "port", "share", "since_us")

    def __init__(self, bound: decisions.GangBound, share: Share, since_us: int) -> None:
        self.job_id = bound.job_id
        self.attempt = bound.attempt
        self.share = share
        self.port = bound.master_port if share is bound.shares[0] else None
        self.since_us = since_us


class JobRecord:
    """A job that was admitted."""

    def __init__(self, spec: JobSpec, index: int, at_us: int) -> None:
        self.spec = spec
        self.submitted = index
        self.priority = spec.priority
        self.attempts = 0
        self.live: decisions.GangBound | None = None
        self.bound_us = 0
        self.ran_since_evicted_us = 0
        """Of the attempts that are over, without those up to the last one that gave way."""
        self.preempted: decisions.PreemptionOrdered | None = None
        self.stop: decisions.AttemptStopOrdered | None = None
        self.ended: decisions.JobEnded | None = None
        self.held = spec.held
        self.waits_since_us = at_us
        """Since it was queued or released last."""
        self.waited_us = 0
        """Since it was queued last, until it was held: while it is held it waits for nobody but its user."""
        self.committed_us = 0
        """Of the live attempt's last committed checkpoint, else of its binding."""
        self.exited = False
        """Whether a rank of the live attempt was reported to have ended."""
        self.preemptions = 0
        self.last_shares: tuple[Share, ...] = ()
        """Of the attempt before."""

    def hold_or_release(self, now_us: int, *, held: bool) -> None:
        """Hold the job, or release it; what it has waited is kept, and time on hold is none of it."""
        if self.live is None and held != self.held:
            self.waited_us += now_us - self.waits_since_us if held else 0
            self.waits_since_us = now_us
        self.held = held

    def has_waited_us(self, now_us: int) -> int:
        """Return how long the job has waited since it was queued last, if it waits."""
        return self.waited_us + now_us - self.waits_since_us

    def run_since_evicted_us(self, now_us: int) -> int:
        """Return how long it has run since it gave way last, its live attempt included."""
        return self.ran_since_evicted_us + now_us - self.bound_us

    def attempt_over(self, now_us: int) -> None:
        """Let it have no attempt any more."""
        if self.live is not None:
            self.last_shares = self.live.shares
            self.ran_since_evicted_us = 0 if self.preempted is not None else self.run_since_evicted_us(now_us)
        self.live = None


class NodeRecord:
    """What is known of a node."""

    def __init__(self, event: control.NodeRegistered) -> None:
        self.has = event
        self.cordoned = False
        self.draining = False
        self.quarantined = False
        self.lost = False
        self.broken: set[int] = set()
        self.could_not_launch: set[str] = set()
        """Jobs that are rather started elsewhere."""
        self.check_index: int | None = None
        """Of the check that was ordered, until its report."""


class CouldStart(NamedTuple):
    """That a job waited though it fitted: for which attempt, and the nodes that were open to it."""

    attempts: int
    node_ids: frozenset[str]


class Watch:
    """What is looked at from round to round."""

    def __init__(self) -> None:
        self.could_start: dict[str, CouldStart] = {}
        """After the round before: who waited though it fitted."""
        self.claims: dict[str, int] = {}
        """Who waits for what others have borrowed, and at how many intervals it did."""


def milli_of(share: Share) -> int:
    """Return the thousandths of GPUs that a share holds."""
    return len(share.gpus) * share.gpu_milli
