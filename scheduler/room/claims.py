"""A claimant: a pending job for which there is no room as the cluster lies."""

from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.events.types import PreemptionReason
from gangline.scheduler.fleet import Flags, Ints
from gangline.scheduler.room.standing import Standing
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import Job
from gangline.scheduler.views.running import Runs


class Claim(NamedTuple):
    """A claimant, for GPUs of one type, and how its queue stands to the others."""

    job: Job
    shape: Shape
    gang: bool
    """Whether it needs several nodes."""
    level: int
    waited_us: int
    """In all."""
    gpu_type: str
    standing: Standing
    starves: bool = False
    """Whether it has waited so long that no level keeps it from whoever gives way by service."""
    ceiling: str = ""
    """The queue whose ceiling bars it, the lowest of them: who gives way has to count for that queue."""
    short_milli: int = 0
    """How much has to leave that queue, and those above it, for their ceilings to let the claimant start."""

    def under_ceiling(self, runs: Runs) -> Flags:
        """Return whose GPUs count for the ceiling that bars the claimant; all if there is none."""
        if not self.ceiling or not runs.size:
            return np.ones(runs.size, np.bool_)
        below = f"{self.ceiling}/"
        under: Flags = np.array([f"{queue}/".startswith(below) for queue in runs.queues], np.bool_)[runs.queue]
        return under


class Bench(NamedTuple):
    """Who could give way at all, and what a rule needs to know of them."""

    policy: Policy
    runs: Runs
    type_index: int
    """Of the claimant's GPUs."""

    @property
    def candidates(self) -> Flags:
        """Preemptible attempts on GPUs of the type."""
        found: Flags = self.runs.preemptible & (self.runs.type_index == self.type_index)
        return found

    def by_run(self, by_queue: Flags) -> Flags:
        """Return by attempt what is known by queue."""
        by_run: Flags = by_queue[self.runs.queue] if self.runs.size else np.zeros(0, np.bool_)
        return by_run

    def outlived_shield(self, least_us: Ints | int) -> Flags:
        """Return whose shield is over: it grows with each eviction, and failures since the last do not renew it.

        `least_us` is the run time from which even one that was never evicted may be a victim. A gang that fails
        oftener than its shield lasts would never be one otherwise.
        """
        found: Flags = self.runs.since_evicted_us >= least_us + self.policy.shield_step_us * self.runs.preemptions
        return found

    def least_run_us(self) -> Ints:
        """Return how long each attempt runs before it may be a victim."""
        return np.where(self.runs.gang, self.policy.gang_min_runtime_us, self.policy.min_runtime_us)

    def ran_long_enough(self) -> Flags:
        """Return who has run for as long as everyone may, however often he was evicted."""
        found: Flags = self.runs.run_us >= self.least_run_us()
        return found

    def unshielded(self) -> Flags:
        """Return who has run long enough, and was not evicted too often."""
        return self.ran_long_enough() & self.outlived_shield(self.least_run_us()) & self.not_too_often()

    def not_too_often(self) -> Flags:
        """Return who was evicted less often than one may be."""
        policy, runs = self.policy, self.runs
        return runs.preemptions < np.where(runs.gang, policy.gang_preemptions_max, policy.preemptions_max)

    def protected(self) -> Flags:
        """Return the gangs that waited so long, in all, that only reclaim may take them."""
        policy, runs = self.policy, self.runs
        if "protection" not in policy.rules:
            return np.zeros(runs.size, np.bool_)
        waited = (runs.waited_us >= policy.protection_from_us) & (runs.waited_us < policy.protection_until_us)
        protected: Flags = runs.gang & waited
        return protected


def above(claim: Claim, bench: Bench) -> Flags:
    """Return who is of a higher priority inside the claimant's queue."""
    found: Flags = bench.by_run(claim.standing.same) & (bench.runs.priority > claim.job.spec.priority)
    return found


class Victims(NamedTuple):
    """Who may go by one rule."""

    reason: PreemptionReason
    eligible: Flags
    last_resort: Flags | None = None
    """Those of them who go only if no others will do."""
