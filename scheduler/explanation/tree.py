"""How queues stand: what each is guaranteed, uses, has borrowed and lent, what waits in it, and what could start."""

from collections.abc import Mapping

import numpy as np

from gangline.events.types import Value
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.spares import spare_nodes
from gangline.scheduler.state import State
from gangline.scheduler.views import Views
from gangline.scheduler.views.uses import quota_is_on


class TypeStanding(Value, frozen=True, kw_only=True):
    """A queue's GPUs of one type, in thousandths."""

    gpu_type: str
    guarantee_milli: int
    ceiling_milli: int | None
    weight: int
    use_milli: int
    """Of running jobs that were not told to give way, and of what is held for claimants."""
    borrowed_milli: int
    """Of the use, what is above the guarantee."""
    lent_milli: int
    """Of the guarantee, what is not used while queues beside it borrow, in equal parts of what is unused there."""
    could_start_milli: int
    """What is free on nodes open to all, as far as ceilings allow."""
    could_start_fixed_milli: int
    """The same for jobs that are not preemptible, which may not borrow."""


class QueueStanding(Value, frozen=True, kw_only=True):
    """A queue with all below it."""

    path: str
    pending: int
    """Jobs that wait, for whatever reason."""
    pending_milli: int
    """GPUs that they ask for."""
    types: tuple[TypeStanding, ...]


def queue_standings(state: State) -> tuple[QueueStanding, ...]:
    """Return how every queue stands just after a round, sorted by path."""
    views = Views()
    views.sync(state)
    free = _free(state, views)
    waiting = _asked_for(state, views)
    tree = views.uses.tree
    return tuple(
        QueueStanding(
            path=path,
            pending=waiting.get(path, (0, 0))[0],
            pending_milli=waiting.get(path, (0, 0))[1],
            types=tuple(_standing(state, views, path, gpu_type, free.get(gpu_type, 0)) for gpu_type in tree.types),
        )
        for path in tree.paths
    )


def _standing(state: State, views: Views, path: str, gpu_type: str, free_milli: int) -> TypeStanding:
    uses = views.uses
    limits, use = uses.tree.limits(path, gpu_type), uses.use[path, gpu_type]
    could, fixed = free_milli, free_milli
    if state.policy is not None and quota_is_on(state.policy):
        for above in uses.tree.prefixes(path):
            limit = uses.tree.limits(above, gpu_type)
            if limit.ceiling_milli is not None:
                could = min(could, max(limit.ceiling_milli - uses.use[above, gpu_type], 0))
            fixed = min(fixed, max(limit.guarantee_milli - uses.fixed[above, gpu_type], 0))
        fixed = min(fixed, could)
    return TypeStanding(
        gpu_type=gpu_type,
        guarantee_milli=limits.guarantee_milli,
        ceiling_milli=limits.ceiling_milli,
        weight=limits.weight,
        use_milli=use,
        borrowed_milli=max(use - limits.guarantee_milli, 0),
        lent_milli=_lent(views, path, gpu_type),
        could_start_milli=could,
        could_start_fixed_milli=fixed,
    )


def _lent(views: Views, path: str, gpu_type: str) -> int:
    uses = views.uses
    beside = uses.tree.children[path.rpartition("/")[0]]
    over = {one: uses.use[one, gpu_type] - uses.tree.limits(one, gpu_type).guarantee_milli for one in beside}
    borrowed = sum(milli for _, milli in sorted(over.items()) if milli > 0)
    unused = sum(-milli for _, milli in sorted(over.items()) if milli < 0)
    own = max(-over[path], 0)
    return min(borrowed, unused) * own // unused if unused else 0


def _free(state: State, views: Views) -> Mapping[str, int]:
    """Return what is free of each type on the nodes that are open to everybody."""
    fleet = views.nodes.fleet
    usable = ~fleet.blocked
    for job_id in sorted(views.nodes.reserved):
        usable[views.nodes.reserved[job_id]] = False
    spares = None if state.policy is None else spare_nodes(state.policy, views)
    if spares is not None:
        usable &= ~spares
    free = np.zeros(len(fleet.types), np.int64)
    np.add.at(free, fleet.type_index[usable], fleet.free[usable].sum(axis=1, dtype=np.int64))
    return dict(zip(fleet.types, free.tolist(), strict=True))


def _asked_for(state: State, views: Views) -> Mapping[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for job_id in sorted(state.pending):
        spec = state.jobs[job_id].spec
        for path in views.uses.tree.prefixes(spec.queue):
            jobs, milli = found.get(path, (0, 0))
            found[path] = (jobs + 1, milli + shape_of(spec).milli)
    return found
