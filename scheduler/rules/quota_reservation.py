"""A gang that quota bars reserves no nodes, which others can have meanwhile: what it lacks of quota is kept for it.

What that keeps from others is found out where they are placed: see `gangline.scheduler.kept_quota`.
"""

from gangline.events.decisions import NodesReserved
from gangline.events.policy import Policy
from gangline.scheduler.elastic import least
from gangline.scheduler.reservations import is_hard
from gangline.scheduler.roles import place_whole
from gangline.scheduler.round import Round
from gangline.scheduler.rules.admission_quota import bar_of
from gangline.scheduler.rules.placement import allowed_nodes
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.spares import spare_nodes
from gangline.scheduler.state import Job


def lacks_quota(round_: Round, policy: Policy, job: Job) -> bool:
    """Whether a gang has waited until nodes are reserved for good, and only quota in use keeps it from having them.

    One that fits only on what is kept for recovery would keep its quota from others for nothing.
    """
    state, views = round_.state, round_.views
    if not is_hard(state, policy, job) or not allowed_nodes(state, policy, views, job)[0]:
        return False
    tree, spec = views.uses.tree, least(policy, job.spec)
    milli = shape_of(spec).milli
    ever = any(bar_of(tree, spec, gpu_type, milli) is None for gpu_type in spec.gpu_types or tree.types)
    if not ever:
        return False
    fleet, spares = views.nodes.fleet, spare_nodes(policy, views)
    nodes = ~fleet.blocked if spares is None or job.recovering else ~(fleet.blocked | spares)
    return place_whole(views.nodes.empty, shape_of(spec), nodes) is not None


def keep_quota(round_: Round, job: Job) -> None:
    """Keep what a gang lacks of quota, and let others have the nodes that were reserved for it, if any."""
    before, now_us = round_.state.reserved.get(job.job_id), round_.state.now_us
    if before is None or before.node_ids:
        since_us = now_us if before is None else before.since_us
        round_.emit(NodesReserved(job_id=job.job_id, node_ids=(), since_us=since_us, free_at_us=now_us))
