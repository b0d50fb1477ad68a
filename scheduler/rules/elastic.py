"""Elastic gangs grow into GPUs that are idle, at an interval, where nobody waits who could have them.

To grow is to start anew, and counts as a preemption: a gang has run for its time, has not given way too often, and
gains as much as policy asks for. What it will have is held for it until its ranks are gone. How it gives back what it
has above its least size is `gangline.scheduler.room.shrinking`.
"""

import numpy as np

from gangline.events.decisions import RoomHeld
from gangline.events.policy import Policy
from gangline.events.types import MILLION, Share
from gangline.scheduler.elastic import RULE, largest, of_size, size_of, sizes
from gangline.scheduler.recovery import incomplete
from gangline.scheduler.room.claims import Bench
from gangline.scheduler.room.orders import order
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.round import Round
from gangline.scheduler.rules.placement import allowed_nodes
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.state import Job
from gangline.scheduler.timers import is_due

MAX_GROWN = 16
"""Gangs for which larger sizes are tried at an interval; those of the queues that have used least come first."""


def decide(round_: Round) -> None:
    """Let gangs grow, if it is time to."""
    policy = round_.policy
    if policy is None or RULE not in policy.rules or not is_due(round_.state, policy.elastic_interval_us):
        return
    for job_id in _in_turn(round_, policy)[:MAX_GROWN]:
        job = round_.state.jobs[job_id]
        shares = _grown(round_, policy, job)
        if shares is None:
            continue
        held = RoomHeld(job_id=job_id, shares=shares, reason="grow", until_us=None)
        if not round_.emit(order(round_.state, policy, job_id, "grow"), held):
            return


def _in_turn(round_: Round, policy: Policy) -> list[str]:
    """Return those that may grow into what nobody else waits for, by what their queues have used of late."""
    state, views = round_.state, round_.views
    if not views.running.any_grows(state):
        return []
    runs = views.running.runs(state, policy)
    bench = Bench(policy, runs, -1)
    rows = np.flatnonzero(runs.preemptible & (runs.growth > 0) & bench.unshielded())
    if not rows.size:
        return []
    fleet = views.nodes.fleet
    wanted = _wanted(round_, policy)
    idle = np.zeros(len(fleet.types), np.int64)
    np.add.at(idle, fleet.type_index, np.where(fleet.blocked, 0, fleet.whole_free))
    may = [
        row for row in rows.tolist() if idle[runs.type_index[row]] and fleet.types[runs.type_index[row]] not in wanted
    ]
    return [
        runs.job_ids[row]
        for row in sorted(may, key=lambda row: (views.uses.share_of(state, policy, runs.queues[runs.queue[row]]), row))
    ]


def _wanted(round_: Round, policy: Policy) -> list[str]:
    """Return the GPU types that somebody waits for whom quota does not bar."""
    state, views = round_.state, round_.views
    types = views.nodes.fleet.types
    wanted: dict[str, None] = {}
    for group in views.pending.groups:
        if group.shape.milli:
            head = state.jobs[views.pending.groups[group][0][-1]]
            if not allowed_nodes(state, policy, views, head)[0]:
                wanted |= dict.fromkeys(group.shape.gpu_types or types)
    return list(types) if incomplete(state, policy) else sorted(wanted)


def _grown(round_: Round, policy: Policy, job: Job) -> tuple[Share, ...] | None:
    """Return where a gang would be at the largest size that it can have, if that gains enough."""
    state, views, attempt = round_.state, round_.views, job.attempt
    if attempt is None:
        return None
    now = size_of(attempt)
    enough = now + max(-(-now * policy.elastic_gain_ppm // MILLION), 1)
    fleet = views.nodes.fleet
    most = now + int(fleet.whole_free[~fleet.blocked].sum())
    options = [size for size in sizes(policy, job.spec) if enough <= size <= most]
    with views.lent(state, job.job_id):
        trial = Trial(state, views.nodes)
        trial.without(job)
        gpu_type = fleet.types[fleet.type_index[fleet.row[attempt.bound.shares[0].node_id]]]

        def grown(size: int) -> tuple[Share, ...] | None:
            larger = of_size(job, size)
            barred, allowed = allowed_nodes(state, policy, views, larger)
            if barred:
                return None
            alike = fleet.types_mask([gpu_type])
            return trial.place(shape_of(larger.spec), alike if allowed is None or alike is None else allowed & alike)

        return largest(options, grown)
