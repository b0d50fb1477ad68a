"""Claims: what a team may have within its guarantee, and others have borrowed; and how long it takes to get it.

A claim is a pending job that no quota bars, with which its team's use stays within its guarantee, and which is no
larger than what other teams have borrowed by preemptible jobs. Its wait runs from becoming one to its binding. It is
none any more once the team uses its guarantee otherwise, or quota bars it; that others give back what they had borrowed
does not end it. An attempt that was told to give way no longer counts as its team's use.

Quota bars a job that is not preemptible if such jobs of its project, or of its team, would exceed the guarantee there.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gangline.simulator.virtual_job import VirtualJob


class Met(NamedTuple):
    """A claim that was met, or still was not when the simulation ended."""

    milli: int
    since_us: int
    wait_us: int
    met: bool


Size = tuple[int, str]
"""Thousandths of GPUs, and the project by whose quota they may be barred; "" for a preemptible job, which none bars."""


class Team:
    """Use and claims of one team, in thousandths of GPUs."""

    def __init__(self, guarantee_milli: int, project_milli: int | None = None) -> None:
        self.guarantee_milli = guarantee_milli
        self.project_milli = guarantee_milli if project_milli is None else project_milli
        """The guarantee of each of its projects."""
        self.use = 0
        """Of attempts that were not told to give way."""
        self.preemptible_use = 0
        self.fixed_use = 0
        """Of jobs that are not preemptible."""
        self.fixed_by_project: dict[str, int] = {}
        self.pending: dict[Size, dict[VirtualJob, bool]] = {}
        """Jobs that are no claim."""
        self.claims: dict[Size, dict[VirtualJob, int]] = {}
        """Since when each job is one."""

    @property
    def borrowed(self) -> int:
        """Return what others could take back."""
        return max(min(self.preemptible_use, self.use - self.guarantee_milli), 0)

    def uses(self, job: VirtualJob, milli: int) -> None:
        """Let a job use so much more."""
        spec = job.work.spec
        self.use += milli
        if spec.preemptible:
            self.preemptible_use += milli
        else:
            self.fixed_use += milli
            self.fixed_by_project[spec.queue] = self.fixed_by_project.get(spec.queue, 0) + milli

    def fixed_left(self, project: str) -> int:
        """Return what quota still lets jobs of a project have that are not preemptible."""
        own = self.project_milli - self.fixed_by_project.get(project, 0)
        return min(own, self.guarantee_milli - self.fixed_use)

    def waits(self, job: VirtualJob, milli: int) -> None:
        """Let a job wait."""
        self.pending.setdefault(_size(job, milli), {})[job] = True

    def forget(self, job: VirtualJob, milli: int) -> int | None:
        """Let a job wait no longer, and return since when it was a claim."""
        size = _size(job, milli)
        pending, claims = self.pending.get(size), self.claims.get(size)
        since_us = None if claims is None else claims.pop(job, None)
        if pending is not None:
            pending.pop(job, None)
            if not pending:
                del self.pending[size]
        if claims is not None and not claims:
            del self.claims[size]
        return since_us

    def refresh(self, at_us: int, others_borrowed: int) -> None:
        """Find out which pending jobs are claims now."""
        for size in [size for size in self.claims if size[0] > self._most(size)]:
            self.pending.setdefault(size, {}).update(dict.fromkeys(self.claims.pop(size), True))
        for size in [size for size in self.pending if size[0] <= min(self._most(size), others_borrowed)]:
            self.claims.setdefault(size, {}).update(dict.fromkeys(self.pending.pop(size), at_us))

    def _most(self, size: Size) -> int:
        """Return what a job may ask for to claim it."""
        own, project = self.guarantee_milli - self.use, size[1]
        return min(own, self.fixed_left(project)) if project else own


def _size(job: VirtualJob, milli: int) -> Size:
    spec = job.work.spec
    return milli, "" if spec.preemptible else spec.queue


class Claims:
    """All teams' claims."""

    def __init__(self, guarantees: Sequence[tuple[str, int]], project_milli: int | None = None) -> None:
        self.teams = {name: Team(milli, project_milli) for name, milli in guarantees}
        self.met: list[Met] = []

    def bound(self, team: str, job: VirtualJob, milli: int, at_us: int) -> None:
        """Let a job have its gang."""
        since_us = self.teams[team].forget(job, milli)
        if since_us is not None:
            self.met.append(Met(milli, since_us, at_us - since_us, met=True))

    def refresh(self, at_us: int) -> None:
        """Find out which pending jobs are claims now."""
        borrowed = sum(team.borrowed for team in self.teams.values())
        for team in self.teams.values():
            team.refresh(at_us, borrowed - team.borrowed)

    def still_open(self, at_us: int) -> list[Met]:
        """Return the claims that were not met by then."""
        return [
            Met(milli, since_us, at_us - since_us, met=False)
            for team in self.teams.values()
            for (milli, _), claims in team.claims.items()
            for since_us in claims.values()
        ]
