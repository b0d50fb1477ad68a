"""Batch: small jobs that have had little service and wait together take the place of one borrowing gang."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.elastic import least
from gangline.scheduler.room.claimants import Claiming, claims_of, turns, without_ping_pong
from gangline.scheduler.room.claims import Victims
from gangline.scheduler.room.orders import evicting
from gangline.scheduler.room.plan import Plan, plan_of_rows
from gangline.scheduler.round import Round
from gangline.scheduler.shapes import is_gang
from gangline.scheduler.state import Job
from gangline.scheduler.turns import waited_us
from gangline.scheduler.views.pending import GroupKey
from gangline.scheduler.views.uses import quota_is_on


class Waiting(NamedTuple):
    """The small jobs that wait together: the first of them, and what they ask for in all."""

    group: GroupKey
    job: Job
    asked_milli: int


def decide(round_: Round, policy: Policy) -> None:
    """Let one borrowing gang go, if small jobs that waited long, and could have its GPUs, ask for enough together."""
    in_turn = [group for _, group in sorted(turns(round_, policy))]
    for gpu_type in round_.views.nodes.fleet.types:
        waiting = _waiting(round_, policy, in_turn, gpu_type)
        if waiting is None:
            continue
        runs = round_.views.running.runs(round_.state, policy)
        for claiming in claims_of(round_, policy, waiting.group, waiting.job, runs):
            plan = _plan(round_, claiming, waiting) if claiming.claim.gpu_type == gpu_type else None
            if plan is not None:
                round_.emit(*evicting(round_.state, policy, waiting.job.job_id, plan))
                return


def _waiting(round_: Round, policy: Policy, in_turn: Sequence[GroupKey], gpu_type: str) -> Waiting | None:
    """Return those that wait for GPUs of a type, if they ask for enough; whom quota bars does not count."""
    state, views = round_.state, round_.views
    first: tuple[GroupKey, Job] | None = None
    asked_milli = 0
    by_queue: defaultdict[str, int] = defaultdict(int)
    for group in in_turn:
        line, shape = views.pending.groups[group], group.shape
        if group.level or not shape.milli or (shape.gpu_types and gpu_type not in shape.gpu_types):
            continue
        if is_gang(least(policy, state.jobs[line[0][-1]].spec), views.nodes.fleet.widest_of(shape.gpu_types)):
            continue
        for *_, job_id in line:
            job = state.jobs[job_id]
            if waited_us(state, job) < policy.batch_after_us:
                break  # those behind it came later
            by_queue[group.queue] += shape.milli
            if quota_is_on(policy) and not views.uses.allows(
                group.queue, gpu_type, by_queue[group.queue], preemptible=group.preemptible
            ):
                by_queue[group.queue] -= shape.milli
                break
            first = first or (group, job)
            asked_milli += shape.milli
            if asked_milli >= policy.batch_gpus * WHOLE_MILLI:
                return Waiting(first[0], first[1], asked_milli)
    return None


def _plan(round_: Round, claiming: Claiming, waiting: Waiting) -> Plan | None:
    claim, nodes, bench = claiming
    runs = bench.runs
    eligible = bench.candidates & bench.by_run(claim.standing.borrows) & runs.gang & (runs.level > 0)
    eligible &= bench.unshielded() & ~bench.protected()
    (victims,) = without_ping_pong(round_, waiting.job, [Victims("batch", eligible)])
    asked = waiting.asked_milli // WHOLE_MILLI
    rows = np.flatnonzero(victims.eligible).tolist()
    # The largest that is not more than they ask for, else the smallest; of equals the highest level, the longest run.
    rows.sort(
        key=lambda row: (
            runs.gpus[row] > asked,
            -runs.gpus[row] if runs.gpus[row] <= asked else runs.gpus[row],
            -runs.level[row],
            -runs.run_us[row],
            row,
        )
    )
    for row in rows[:1]:
        return plan_of_rows(round_, claim, runs, [victims], (row,), nodes)
    return None
