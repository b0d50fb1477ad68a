"""Whoever is told to give way is needed: without any one of them the claimant would not fit."""

import random

import pytest

from gangline.events.decisions import PreemptionOrdered, RoomHeld
from gangline.events.policy import Policy, Queue, Quota
from gangline.scheduler.room.claimants import claims_of
from gangline.scheduler.room.trial import Trial
from gangline.scheduler.round import Round
from gangline.scheduler.rules.room import room_for
from gangline.scheduler.views import Views
from tests.scheduler.world import SECOND_US, World, all_of, the

POLICY = Policy(
    queues=tuple(Queue(path=path, quotas=(Quota(guarantee_milli=8_000),)) for path in ("a", "b")),
    rules=("quota", "levels", "reclaim", "priority", "service", "first_start"),
    levels_us=(60 * SECOND_US, 240 * SECOND_US),
    gang_levels_us=(60 * SECOND_US, 240 * SECOND_US),
    min_runtime_us=0,
    gang_min_runtime_us=0,
    reclaim_after_us=0,
    reclaim_min_runtime_us=0,
    first_start_after_us=0,
    first_start_min_runtime_us=0,
    room_interval_us=10_000 * SECOND_US,
)


def busy_world(seed: int) -> tuple[World, list[str]]:
    """Return nodes full of jobs that have run for different times, and jobs that wait."""
    draw = random.Random(seed)
    it = World(POLICY)
    for number in range(4):
        it.node(f"node-{number}", 4, cpu_milli=draw.choice((8, 16)) * 1_000)
    it.tick()
    for _ in range(14):
        it.submit(
            queue=draw.choice("ab"),
            gpus=(gpus := draw.choice((1, 1, 2, 3, 4, 8))),
            gpu_milli=draw.choice((500, 1_000)) if gpus == 1 else 1_000,
            cpu_milli=draw.choice((0, 0, 2_000)),
            preemptible=draw.random() < 0.9,
        )
        it.passes(draw.choice((5, 60, 120)))
    waiting = [
        it.submit(queue=draw.choice("ab"), gpus=draw.choice((1, 2, 4, 6, 8, 12)), priority=draw.choice((0, 1)))
        for _ in range(6)
    ]
    it.tick()
    return it, [job_id for job_id in waiting if job_id in it.state.pending]


@pytest.mark.parametrize("seed", range(30))
def test_without_any_one_of_those_who_go_the_claimant_would_not_fit(seed: int) -> None:
    it, waiting = busy_world(seed)
    for job_id in waiting:
        job = it.state.jobs[job_id]
        round_ = Round(it.state, Views())
        decisions = list(room_for(round_, POLICY, job))
        if not decisions:
            continue
        held = the(RoomHeld, decisions)
        victims = [order.job_id for order in all_of(PreemptionOrdered, decisions)]
        group = round_.views.pending.group_of(job_id)
        runs = round_.views.running.runs(it.state, POLICY)
        ((claim, nodes, _),) = claims_of(round_, POLICY, group, job, runs)
        for spared in (None, *victims):
            trial = Trial(it.state, round_.views.nodes)
            for victim in victims:
                if victim != spared:
                    trial.without(it.state.jobs[victim])
            shares = trial.place(claim.shape, nodes)
            assert (shares == held.shares) if spared is None else (shares is None), f"{spared} of {victims} could stay"
