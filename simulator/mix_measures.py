"""What the mix is judged by, computed beside the core from what was bound, what left, and what attempts did.

Time is integrated between rounds, each state of the cluster standing from its round to the next; fractions count by
their thousandths.

- usable: the smaller of the GPUs that are up and the GPUs asked for (running, and pending unless their quota bars
  them); allocation: what is allocated of it; useful: without what saves, restarts, and work that is lost;
- idle: free GPUs, held ones included, while a pending job exists that would fit as they lie.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gangline.events.decisions import PreemptionOrdered
from gangline.events.types import WHOLE_MILLI, Decision, Value
from gangline.simulator.claims import Claims
from gangline.simulator.mix import (
    DAY_US,
    GUARANTEE_GPUS,
    PROJECT_GUARANTEE_GPUS,
    SETTLING_DAYS,
    TEAMS,
    is_gang,
    milli_of,
    team_of,
)
from gangline.simulator.observer import Observer
from gangline.simulator.room import Room
from gangline.simulator.run import Run, Segment
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import SECOND_US, VirtualNode

GANG_MILLI = 8 * WHOLE_MILLI
"""Claims above this are gangs'."""
PROMPT_US = 600 * SECOND_US


class Window(NamedTuple):
    """The time that is measured."""

    from_us: int
    to_us: int

    def clipped_us(self, from_us: int, to_us: int) -> int:
        """Return how much of a time lies in the window."""
        return max(min(to_us, self.to_us) - max(from_us, self.from_us), 0)


class Figures(Value, frozen=True, kw_only=True):
    """What came of one mix. Percentages are of what was usable; waits still going on at the end count so far."""

    allocation_pct: float
    useful_pct: float
    idle_pct: float
    claims_prompt_pct: float
    """Of all claims, those met within 10 minutes."""
    claims_p99_s: float
    gang_claims_p99_s: float
    gangs_first_start_24h_pct: float
    gangs_total_24h_pct: float
    gang_wait_mean_h: float
    small_mean_s: float
    small_p99_s: float
    preemptions_per_job: float
    preemptions_most: int
    saving_pct: float
    restarting_pct: float
    lost_pct: float
    claims: int
    failed: int
    """Jobs that did not end well."""


class MixMeasures(Observer):
    """Watches one mix in a window of its days."""

    def __init__(self, nodes: Iterable[VirtualNode], days: int) -> None:
        self.window = Window(SETTLING_DAYS * DAY_US, days * DAY_US)
        guarantees = [(team, GUARANTEE_GPUS * WHOLE_MILLI) for team in TEAMS]
        self.claims = Claims(guarantees, PROJECT_GUARANTEE_GPUS * WHOLE_MILLI)
        self._room = Room(nodes)
        self._jobs: list[VirtualJob] = []
        self._allocated = 0
        self._pending: dict[tuple[str, bool], dict[tuple[int, int], int]] = {}
        """How many wait, by (project, preemptible) and (GPUs, thousandths of each)."""
        self._ordered: dict[str, bool] = {}
        """Jobs whose attempt was told to give way."""
        self._changed = True
        self._since_us = 0
        self._now = (0, 0, 0)
        """Usable, allocated and idle since the last round that changed anything."""
        self._sums = [0, 0, 0]
        self._spent = {"restarting": 0, "working": 0, "saving": 0, "lost": 0}

    # --- what happens ---

    def submitted(self, at_us: int, job: VirtualJob) -> None:
        """Count a job in."""
        self._jobs.append(job)
        self._wait(job, 1)

    def bound(self, at_us: int, job: VirtualJob, run: Run) -> None:
        """Take what a gang got."""
        spec = job.work.spec
        self._wait(job, -1)
        self.claims.bound(team_of(spec), job, milli_of(spec), at_us)
        for share in run.bound.shares:
            self._room.take(share)
        milli = milli_of(spec)
        self._allocated += milli
        self._use(job, milli)

    def ordered(self, at_us: int, job: VirtualJob, run: Run, decision: PreemptionOrdered) -> None:
        """Let what must give way no longer count as its team's."""
        self._ordered[job.job_id] = True
        left = sum(share.gpu_milli * len(share.gpus) for share in run.bound.shares if share.node_id in run.shares_left)
        self._use(job, -left)

    def left(self, at_us: int, job: VirtualJob, run: Run, node_id: str) -> None:
        """Give back what ranks on a node had; a gang that has left altogether waits, until it is over."""
        for share in run.bound.shares:
            if share.node_id == node_id:
                self._room.give_back(share)
                milli = share.gpu_milli * len(share.gpus)
                self._allocated -= milli
                if job.job_id not in self._ordered:
                    self._use(job, -milli)
        if not run.shares_left:
            self._ordered.pop(job.job_id, None)
            self._wait(job, 1)
        self._changed = True

    def ended(self, at_us: int, job: VirtualJob) -> None:
        """Count a job out."""
        self._wait(job, -1)

    def node_changed(self, at_us: int, node_id: str, *, up: bool) -> None:
        """Count a node out, or in."""
        self._room.change(node_id, up=up)
        self._changed = True

    def did(self, job: VirtualJob, run: Run, segments: Sequence[Segment]) -> None:
        """Count what GPUs were busy with."""
        milli = milli_of(job.work.spec)
        for kind, from_us, to_us in segments:
            self._spent[kind] += self.window.clipped_us(from_us, to_us) * milli

    def ticked(self, at_us: int, decisions: Sequence[Decision]) -> None:
        """Look at the cluster after a round."""
        if not self._changed:
            return
        self._integrate(at_us)
        self._changed = False
        self.claims.refresh(at_us)
        self._now = self._look()

    def _wait(self, job: VirtualJob, count: int) -> None:
        spec = job.work.spec
        sizes = self._pending.setdefault((spec.queue, spec.preemptible), {})
        size = (spec.gpus, spec.gpu_milli)
        sizes[size] = sizes.get(size, 0) + count
        if not sizes[size]:
            del sizes[size]
        team = self.claims.teams[team_of(spec)]
        if count > 0:
            team.waits(job, milli_of(spec))
        elif job.outcome is not None:
            team.forget(job, milli_of(spec))
        self._changed = True

    def _use(self, job: VirtualJob, milli: int) -> None:
        self.claims.teams[team_of(job.work.spec)].uses(job, milli)
        self._changed = True

    # --- sums ---

    def _integrate(self, at_us: int) -> None:
        span_us = self.window.clipped_us(self._since_us, at_us)
        if span_us:
            for number, value in enumerate(self._now):
                self._sums[number] += value * span_us
        self._since_us = at_us

    def _look(self) -> tuple[int, int, int]:
        pending, fits = 0, False
        for (project, preemptible), sizes in self._pending.items():
            team = self.claims.teams[project.partition("/")[0]]
            room = None if preemptible else team.fixed_left(project)
            for (gpus, gpu_milli), count in sizes.items():
                milli = gpus * gpu_milli
                if room is None or milli <= room:
                    pending += count * milli
                    fits = fits or self._room.fits(gpus, gpu_milli)
        usable = min(self._room.up_milli, self._allocated + pending)
        return usable, self._allocated, self._room.free_milli if fits else 0

    def figures(self) -> Figures:
        """Return what came of it, once the simulation is over."""
        self._integrate(self.window.to_us)
        usable, allocated, idle = max(self._sums[0], 1), self._sums[1], self._sums[2]
        spent = {kind: 100 * one / usable for kind, one in self._spent.items()}
        overhead = spent["saving"] + spent["restarting"] + spent["lost"]
        claims = [
            one
            for one in (*self.claims.met, *self.claims.still_open(self.window.to_us))
            if one.since_us >= self.window.from_us and (one.met or one.wait_us > PROMPT_US)
        ]
        measured = [job for job in self._jobs if job.work.submit_us >= self.window.from_us]
        gangs = [job for job in measured if is_gang(job.work.spec) and job.work.submit_us < self.window.to_us - DAY_US]
        small = [self._waited_us(job) / SECOND_US for job in measured if not is_gang(job.work.spec)]
        first = [(job.first_start_us or self.window.to_us) - job.work.submit_us for job in gangs]
        total = [self._waited_us(job) for job in gangs]
        preemptions = [job.preemptions for job in self._jobs]
        return Figures(
            allocation_pct=100 * allocated / usable,
            useful_pct=100 * allocated / usable - overhead,
            idle_pct=100 * idle / usable,
            claims_prompt_pct=_share_pct([one.wait_us for one in claims], PROMPT_US),
            claims_p99_s=_p99([one.wait_us / SECOND_US for one in claims]),
            gang_claims_p99_s=_p99([one.wait_us / SECOND_US for one in claims if one.milli > GANG_MILLI]),
            gangs_first_start_24h_pct=_share_pct(first, DAY_US),
            gangs_total_24h_pct=_share_pct(total, DAY_US),
            gang_wait_mean_h=sum(total) / max(len(total), 1) / (3600 * SECOND_US),
            small_mean_s=sum(small) / max(len(small), 1),
            small_p99_s=_p99(small),
            preemptions_per_job=sum(preemptions) / max(len(preemptions), 1),
            preemptions_most=max(preemptions, default=0),
            saving_pct=spent["saving"],
            restarting_pct=spent["restarting"],
            lost_pct=spent["lost"],
            claims=len(claims),
            failed=sum(job.outcome not in (None, "succeeded") for job in self._jobs),
        )

    def _waited_us(self, job: VirtualJob) -> int:
        return job.waited_us + (self.window.to_us - job.waiting_us if job.waiting_us is not None else 0)


def _p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)] if ordered else 0.0


def _share_pct(values: Sequence[int], limit: int) -> float:
    return 100 * sum(value <= limit for value in values) / max(len(values), 1)
