"""How a claimant's queue stands to those of the running jobs: who has borrowed, and whether it is within its own.

Two queues are compared at the first level of the tree where their paths differ, as before the eviction.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.scheduler.fleet import Flags
from gangline.scheduler.views.uses import UsesView, quota_is_on


class Claimant(NamedTuple):
    """Who asks, for how many thousandths of GPUs of which type."""

    queue: str
    gpu_type: str
    milli: int


class Standing(NamedTuple):
    """By queue of the running jobs, for one GPU type."""

    same: Flags
    """Whether it is the claimant's own."""
    borrows: Flags
    """Whether it uses more than its guarantee."""
    borrows_below: Flags
    """Whether the queues between there and the job's own do so, too."""
    claims: Flags
    """Whether the claimant's side stays within its guarantee with the claimant."""


def standing_of(uses: UsesView, policy: Policy, queues: Sequence[str], claimant: Claimant) -> Standing:
    """Return how a claimant stands to each of these queues."""
    found = [_stands(uses, policy, queue, claimant) for queue in queues]
    same, borrows, below, claims = (np.array([one[place] for one in found], np.bool_) for place in range(4))
    return Standing(same, borrows, below, claims)


def _stands(uses: UsesView, policy: Policy, queue: str, claimant: Claimant) -> tuple[bool, bool, bool, bool]:
    if queue == claimant.queue:
        return True, False, False, False
    if not quota_is_on(policy):
        return False, True, True, False
    theirs, ours = uses.tree.prefixes(queue), uses.tree.prefixes(claimant.queue)
    level = next((place for place, (one, other) in enumerate(zip(theirs, ours, strict=False)) if one != other), None)
    if level is None:  # one of the two has become part of the other: neither borrows from it
        return True, False, False, False
    gpu_type = claimant.gpu_type
    borrows = [not uses.is_within(path, gpu_type, 0) for path in theirs[level:]]
    return False, borrows[0], all(borrows), uses.is_within(ours[level], gpu_type, claimant.milli)
