"""Claims: what a team may have within its guarantee, and others have borrowed; and how long it takes to get it.

A claim is a pending job with which its team's use stays within its guarantee, and which is no larger than what other
teams have borrowed by preemptible jobs. Its wait runs from becoming one to its binding. It is none any more once the
team uses its guarantee otherwise; that others give back what they had borrowed does not end it. An attempt that was
told to give way no longer counts as its team's use.
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


class Team:
    """Use and claims of one team, in thousandths of GPUs."""

    def __init__(self, guarantee_milli: int) -> None:
        self.guarantee_milli = guarantee_milli
        self.use = 0
        """Of attempts that were not told to give way."""
        self.preemptible_use = 0
        self.fixed_use = 0
        """Of jobs that are not preemptible."""
        self.pending: dict[int, dict[VirtualJob, bool]] = {}
        """By size; jobs that are no claim."""
        self.claims: dict[int, dict[VirtualJob, int]] = {}
        """By size; since when each job is one."""

    @property
    def borrowed(self) -> int:
        """Return what others could take back."""
        return max(min(self.preemptible_use, self.use - self.guarantee_milli), 0)

    def waits(self, job: VirtualJob, milli: int) -> None:
        """Let a job wait."""
        self.pending.setdefault(milli, {})[job] = True

    def forget(self, job: VirtualJob, milli: int) -> int | None:
        """Let a job wait no longer, and return since when it was a claim."""
        pending, claims = self.pending.get(milli), self.claims.get(milli)
        since_us = None if claims is None else claims.pop(job, None)
        if pending is not None:
            pending.pop(job, None)
            if not pending:
                del self.pending[milli]
        if claims is not None and not claims:
            del self.claims[milli]
        return since_us

    def refresh(self, at_us: int, others_borrowed: int) -> None:
        """Find out which pending jobs are claims now."""
        own = self.guarantee_milli - self.use
        for milli in [milli for milli in self.claims if milli > own]:
            self.pending.setdefault(milli, {}).update(dict.fromkeys(self.claims.pop(milli), True))
        most = min(own, others_borrowed)
        for milli in [milli for milli in self.pending if milli <= most]:
            self.claims.setdefault(milli, {}).update(dict.fromkeys(self.pending.pop(milli), at_us))


class Claims:
    """All teams' claims."""

    def __init__(self, guarantees: Sequence[tuple[str, int]]) -> None:
        self.teams = {name: Team(milli) for name, milli in guarantees}
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
            for milli, claims in team.claims.items()
            for since_us in claims.values()
        ]
