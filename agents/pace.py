"""Finds stragglers: ranks whose steps take much longer than those of their peers, from what they log.

Every agent measures the ranks on its node, and leaves what it found in a folder that all nodes of the gang share; the
agent of rank 0 compares. Ranks that wait for each other in every step all take as long as the slowest: those that say
how long they computed by themselves (`run.computing()` of the SDK) are compared by that, others by the clock.
"""

import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gangline.agents.facts import Facts, now_us
from gangline.agents.outbox import Outbox
from gangline.agents.run_folder import AttemptKey, Plan
from gangline.events.types import MILLION, SECOND_US, Value
from gangline.schemas.spool import OWN_TIME, Point, SpoolError, read_spool, spool_path

WINDOW_S = 60.0
"""How long a rank is measured for one report; policy counts reports, so that slow means slow for long."""

MIN_STEPS = 3
"""Of a measurement: one step may have a pause in it that says nothing."""

SLOW_PPM = 1_500_000
"""A rank is slow that takes so much of its peers' median for a step."""

LEAST_EXCESS_US = 10_000
"""And so much more: below that it is noise, and no step worth a GPU is shorter."""

KEPT_WINDOWS = 10
"""Measurements that are older are of a node that does not report any more."""

MAX_READS = 16
"""Batches of a spool that one look takes in; what is behind is read at the next."""


_log = logging.getLogger(__name__)


class Pace(Value, frozen=True, kw_only=True):
    """How long a rank takes for a step; `own` without its waiting for others."""

    rank: int
    role: str
    node_id: str
    step_us: int
    own: bool
    at_us: int


class _Measured:
    """A rank since the measurement began. Points may come in any order; only steps that go on count."""

    def __init__(self) -> None:
        self.offset = 0
        self.first: Point | None = None
        self.last: Point | None = None
        self.own_us = 0
        self.all_own = True

    def add(self, point: Point) -> None:
        if self.first is None or self.last is None:
            self.first = self.last = point
        elif point.step > self.last.step:
            self.last = point
        own_s = point.values.get(OWN_TIME)
        if own_s is not None and self.last is not self.first:
            self.own_us += round(max(own_s, 0.0) * SECOND_US)
        elif self.last is point and self.last is not self.first:
            self.all_own = False

    def take(self, window_us: int) -> tuple[int, bool] | None:
        """Return the time a step and whether it is the rank's own, once there is enough, and begin anew."""
        if self.first is None or self.last is None:
            return None
        steps, elapsed_us = self.last.step - self.first.step, self.last.at_us - self.first.at_us
        if steps < MIN_STEPS or elapsed_us < window_us:
            return None
        found = (self.own_us // steps, True) if self.all_own else (elapsed_us // steps, False)
        self.first, self.own_us, self.all_own = self.last, 0, True
        return found


class PaceWatch:
    """Measures the ranks of one attempt on this node, and reports slow ones of the gang where rank 0 runs."""

    def __init__(
        self,
        key: AttemptKey,
        plan: Plan,
        *,
        spool: Path,
        node_id: str,
        window_s: float,
        facts: Facts,
        outbox: Outbox,
    ) -> None:
        self._key = key
        self._plan = plan
        self._spool = spool
        self._node_id = node_id
        self._window_us = round(window_s * SECOND_US)
        self._facts = facts
        self._outbox = outbox
        self._measured = {one.rank: _Measured() for one in plan.ranks}
        self._role = {one.rank: one.role for one in plan.ranks}
        self._paces: dict[int, Pace] = {}
        self._judged: dict[int, int] = {}
        """The measurement of each rank that was compared last, by its time."""
        self._due_s = 0.0

    def look(self) -> None:
        """Measure, share and compare, if it is time to. What cannot be read now is tried again at the next look."""
        if self._plan.world_size <= 1 or self._plan.pace is None or time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self._window_us / SECOND_US / 2
        try:
            if self._measure() and len(self._plan.ranks) < self._plan.world_size:
                self._share(Path(self._plan.pace))
            if 0 in self._measured:
                self._compare(Path(self._plan.pace))
        except (OSError, SpoolError, msgspec.MsgspecError) as error:
            _log.debug("the pace of %s cannot be told now: %s", self._key.job_id, error)

    def _measure(self) -> bool:
        """Take in what the ranks have logged; return whether a measurement was finished."""
        news = False
        for rank, measured in self._measured.items():
            path = spool_path(self._spool, rank)
            if not path.exists():
                continue
            for _ in range(MAX_READS):
                batch = read_spool(path, measured.offset)
                for point in batch.points:
                    measured.add(point)
                if batch.next_offset == measured.offset:
                    break
                measured.offset = batch.next_offset
            found = measured.take(self._window_us)
            if found is not None:
                step_us, own = found
                role, at_us = self._role[rank], now_us()
                self._paces[rank] = Pace(
                    rank=rank, role=role, node_id=self._node_id, step_us=step_us, own=own, at_us=at_us
                )
                news = True
        return news

    def _share(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{self._node_id}.tmp"
        temporary.write_bytes(msgspec.json.encode(list(self._paces.values())))
        temporary.rename(folder / f"{self._node_id}.json")

    def _compare(self, folder: Path) -> None:
        paces = dict(self._paces)
        for path in folder.glob("*.json"):
            if path.stem != self._node_id:
                paces |= {one.rank: one for one in msgspec.json.decode(path.read_bytes(), type=list[Pace])}
        fresh_us = now_us() - KEPT_WINDOWS * self._window_us
        for pace, slowness_ppm in slow_ranks(pace for pace in paces.values() if pace.at_us >= fresh_us):
            if self._judged.get(pace.rank) == pace.at_us:
                continue
            if self._outbox.put(self._key.job_id, self._facts.slow(self._key, pace.node_id, pace.rank, slowness_ppm)):
                self._judged[pace.rank] = pace.at_us
                _log.warning(
                    "rank %d of %s, on %s, takes %d%% of its peers' time for a step",
                    pace.rank,
                    self._key.job_id,
                    pace.node_id,
                    slowness_ppm // 10_000,
                )


def slow_ranks(paces: Iterable[Pace]) -> list[tuple[Pace, int]]:
    """Return the ranks that are slow, with their time in millionths of the median of their peers', those of a role."""
    by_role: dict[str, list[Pace]] = defaultdict(list)
    for pace in paces:
        by_role[pace.role].append(pace)
    found: list[tuple[Pace, int]] = []
    for peers in by_role.values():
        if len({pace.own for pace in peers}) > 1:
            continue  # what is measured in two ways cannot be compared
        for pace in peers:
            others = [other.step_us for other in peers if other.rank != pace.rank]
            usual_us = statistics.median_low(others) if others else 0
            slowness_ppm = pace.step_us * MILLION // max(usual_us, 1)
            if others and slowness_ppm >= SLOW_PPM and pace.step_us - usual_us >= LEAST_EXCESS_US:
                found.append((pace, slowness_ppm))
    return sorted(found, key=lambda one: one[0].rank)
