"""Warm spares: whole nodes that are kept free for jobs that recover from a failure."""

import numpy as np

from gangline.events.policy import Policy
from gangline.scheduler.fleet import Flags, Fleet
from gangline.scheduler.views import Views


def spare_nodes(policy: Policy, views: Views) -> Flags | None:
    """Return the wholly free nodes that are kept for recovery: the last ones of each GPU type; None if none are."""
    fleet = views.nodes.fleet
    count = max(policy.spare_nodes, policy.spare_ppm * fleet.size // 1_000_000)
    if not count or "spares" not in policy.rules:
        return None
    whole = (fleet.whole_free == fleet.devices) & (fleet.devices > 0) & ~fleet.blocked
    spares = np.zeros(fleet.size, np.bool_)
    for type_index, of_type in enumerate(_spares_by_type(fleet, count)):
        if of_type:
            spares[np.flatnonzero(whole & (fleet.type_index == type_index))[-of_type:]] = True
    return spares if spares.any() else None


def _spares_by_type(fleet: Fleet, count: int) -> list[int]:
    """Return how many of the spares are of each GPU type, in proportion to its nodes: one replaces only its like."""
    nodes = np.bincount(fleet.type_index[fleet.devices > 0], minlength=len(fleet.types)).tolist()
    total = max(sum(nodes), 1)
    found = [count * of_type // total for of_type in nodes]
    last = sorted(range(len(nodes)), key=lambda one: (-(count * nodes[one] % total), one))
    for type_index in last[: count - sum(found)]:
        found[type_index] += 1
    return found
