"""A share of a gang that runs on a node, and what its surroundings are."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gangline.events.decisions import GangBound
from gangline.events.ids import derived
from gangline.events.types import SECOND_US, Decision, Meta, Share
from gangline.simulator.fuzz.mail import Mail
from gangline.simulator.fuzz.plan import LASTS, Conduct, Noise

SIGTERM, SIGKILL = 15, 9


class Clock(NamedTuple):
    """When it is, in seconds of the world, and what the clocks in it show then."""

    log_id: str
    start_us: int

    def meta(self, now_s: int, key: str, actor: str) -> Meta:
        """Return the meta of a record that `key` names."""
        event_id = derived(self.log_id, 0, key)
        return Meta(event_id=event_id, actor=actor, at_us=self.start_us + now_s * SECOND_US)


class Surroundings(Protocol):
    """What a node's agent hears and is told by."""

    noise: Noise
    mail: Mail
    clock: Clock
    rounds: list[tuple[int, tuple[Decision, ...]]]
    """What was decided, and when it could be read."""

    def lag_s(self, node_id: str, now_s: int) -> int:
        """Return how late an agent reads just now."""

    def conduct_of(self, job_id: str) -> Conduct:
        """Return how the attempts of a job go."""


class Running:
    """A share of a gang that runs on a node: from `starts_s` on, until `ends_s`."""

    def __init__(self, bound: GangBound, shares: Sequence[Share], conduct: Conduct, now_s: int) -> None:
        self.bound = bound
        self.shares = shares
        self.conduct = conduct
        self.starts_s = now_s
        self.saved_s = bound.resume[0].step if bound.resume else 0
        ending = conduct.endings[bound.attempt - 1] if bound.attempt <= len(conduct.endings) else LASTS
        self.is_first = shares[0].first_rank == 0
        lasts_s = max(conduct.work_s - self.saved_s, 1)
        self.code = 0
        if ending != LASTS and self.is_first:
            lasts_s, self.code = min(conduct.ends_after_s, lasts_s), ending
        elif ending != LASTS:
            lasts_s += 1_000  # its peers would wait for ever for the rank that ended
        self.ends_s = now_s + lasts_s
        self.stopping = False

    def stop(self, now_s: int, grace_us: int, *, saves: bool) -> None:
        """Let it end as it is told to: after what it needs, or the grace."""
        if self.stopping:
            return
        self.stopping = True
        grace_s = grace_us // SECOND_US
        needs_s = self.conduct.leaves_after_s
        end_s, code = (now_s + needs_s, -SIGTERM) if needs_s <= grace_s else (now_s + grace_s, -SIGKILL)
        if end_s < self.ends_s:
            self.ends_s, self.code = end_s, code
        if saves and needs_s <= grace_s:
            self.saved_s = max(self.saved_s, self.progress_s(now_s))

    def progress_s(self, now_s: int) -> int:
        """Return how much of the job's work is done."""
        base_s = self.bound.resume[0].step if self.bound.resume else 0
        return base_s + now_s - self.starts_s
