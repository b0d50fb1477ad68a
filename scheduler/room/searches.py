"""For whom room is sought: in the order of their turns first, then going round all who are left.

Policy allows so many searches at a time. Once half of them were in vain, or half of the claimants that may be looked
at were looked at, the rest is for the others, from another one on at each interval: nobody waits for ever behind
claimants that cannot be helped, and the first in turn are still looked at each time.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TypeVar

from gangline.events.policy import Policy
from gangline.scheduler.room.claimants import turns
from gangline.scheduler.round import Round
from gangline.scheduler.state import State
from gangline.scheduler.turns import turn_of
from gangline.scheduler.views.pending import GroupKey

CLAIMANTS_PER_SEARCH = 8
"""For each search that policy allows so many claimants are looked at; to most of them nobody could give way."""

T = TypeVar("T")


class Searches:
    """The groups of jobs that wait, one after another; the first job of each is its claimant."""

    def __init__(self, round_: Round, policy: Policy) -> None:
        self._round, self._policy = round_, policy
        self._heap = turns(round_, policy)
        self._others: list[GroupKey] | None = None
        """The rest, last to first, once it is theirs."""
        self._left, self._in_vain = policy.room_searches, 0
        self._looks = CLAIMANTS_PER_SEARCH * policy.room_searches

    def next_group(self) -> GroupKey | None:
        """Return the next group that still waits; None once all were looked at, or as many as policy allows."""
        groups = self._round.views.pending.groups
        while self._left > 0 and self._looks > 0:
            if self._others is None and self._is_half_over():
                rest = [group for _, group in sorted(self._heap)]
                self._others = list(reversed(from_another(self._round.state, self._policy, rest)))
            if not (self._heap if self._others is None else self._others):
                break
            group = heappop(self._heap)[1] if self._others is None else self._others.pop()
            self._looks -= 1
            if group in groups:
                return group
        return None

    def over(self, group: GroupKey, *, searched: bool, found: bool) -> None:
        """Count a search. Who got room leaves the next of its group, whose turn comes in its place."""
        self._left -= searched
        self._in_vain += searched and not found
        line = self._round.views.pending.groups.get(group) if found else None
        if line is None:
            return
        if self._others is None:
            turn = turn_of(self._round.state, self._policy, self._round.views, group, line[0])
            heappush(self._heap, (turn, group))
        else:
            self._others.append(group)

    def _is_half_over(self) -> bool:
        half = self._policy.room_searches // 2
        return self._in_vain >= half or self._looks <= CLAIMANTS_PER_SEARCH * half


def shared_out(state: State, policy: Policy, claimants: Sequence[T]) -> Sequence[T]:
    """Return as many claimants as there are searches: half are the first, the others go round."""
    half = policy.room_searches // 2
    return (*claimants[:half], *from_another(state, policy, claimants[half:])[: policy.room_searches - half])


def from_another(state: State, policy: Policy, claimants: Sequence[T]) -> Sequence[T]:
    """Return claimants from another one on at each interval, each first in its time."""
    if not claimants:
        return claimants
    step = policy.room_searches - policy.room_searches // 2
    start = state.now_us // policy.room_interval_us * step % len(claimants)
    return (*claimants[start:], *claimants[:start])
