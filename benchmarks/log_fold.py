"""Decoding control events and folding them through the core's own reducers, per second of one core's time."""

import gc
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.figures import Figure
from benchmarks.records import MADE_AT_US, command_id, meta, node_registered, report_events, submission
from gangline.events import codec
from gangline.events.control import ActivatePolicy, ClockTicked, LogCreated, TickerTookOver
from gangline.events.decisions import GangBound, JobAdmitted, PolicyActivated
from gangline.events.policy import Policy
from gangline.events.types import Decision, Event, JobSpec, Meta, Share
from gangline.scheduler.evolve import apply_decision, evolve, finish_round
from gangline.scheduler.state import State

LIVE_JOBS = 10_000
NODES = LIVE_JOBS // 8
SEED = 1
GC_THRESHOLD = 100_000


def figures(*, quick: bool) -> Iterator[Figure]:
    """Yield `log.fold_per_s`: what 10,000 running jobs report, and as many submissions, in a shuffled order."""
    state = running_jobs()
    values = reports(state)
    assert all_ended(fold(state, values)), "some events were not applied"
    rates, decode_rates = [], []
    with quiet_collector():
        for _ in range(5 if quick else 15):
            start = time.process_time()
            fold(state, values)
            rates.append(len(values) / (time.process_time() - start))
            start = time.process_time()
            for value in values:
                codec.decode(value)
            decode_rates.append(len(values) / (time.process_time() - start))
    yield Figure(
        name="log.fold_per_s",
        value=statistics.median(rates),
        unit="events/s",
        goal=60_000.0,
        better="higher",
        reference=f"decoding alone {statistics.median(decode_rates):,.0f}/s; {LIVE_JOBS:,} live jobs; CPU time",
    )


def fold(state: State, values: Sequence[bytes]) -> State:
    """Decode and fold records that follow on `state`, as the loop does."""
    for index, value in enumerate(values, state.control_index + 1):
        event = codec.decode(value)
        assert isinstance(event, Event)
        state = evolve(state, index, event)
    return state


def running_jobs() -> State:
    """Return the state in which every job runs, one to a GPU, built by the reducers of the rounds that bound them."""
    first = meta(0, "benchmark", command_id(1 << 32))
    state = fed(
        State(),
        [
            LogCreated(meta=first, log_id="benchmark", format=1),
            TickerTookOver(meta=first, ticker="benchmark"),
            ActivatePolicy(meta=first, policy=Policy()),
            *(node_registered(number) for number in range(NODES)),
        ],
    )
    state = decided(state, [PolicyActivated(command_id=command_id(1 << 32), control_index=2)])
    for number in range(LIVE_JOBS):
        submitted = submission(number)
        state = fed(state, [submitted])
        index = state.control_index
        job_id = f"job-{number:012d}"
        admitted = JobAdmitted(command_id=command_id(number), control_index=index, job_id=job_id)
        state = decided(state, [admitted, bound(number, job_id, submitted.spec)])
    return state


def bound(number: int, job_id: str, spec: JobSpec) -> GangBound:
    """Return the binding of a job to one GPU."""
    share = Share(
        node_id=f"node-{number // 8}",
        address="10.0.0.1",
        gpus=(number % 8,),
        gpu_milli=1000,
        cpu_milli=0,
        memory_bytes=0,
        first_rank=0,
    )
    return GangBound(
        job_id=job_id,
        attempt=1,
        shares=(share,),
        world_size=1,
        master_address=share.address,
        master_port=20_000 + number % 8,
        resume=(),
        name=spec.name,
        command=spec.command,
        env=spec.env,
        grace_us=30_000_000,
        code=spec.code,
        checkpoints=spec.checkpoints,
    )


def fed(state: State, events: Sequence[Event]) -> State:
    """Fold events that were never encoded."""
    for index, event in enumerate(events, state.control_index + 1):
        state = evolve(state, index, event)
    return state


def decided(state: State, decisions: Sequence[Decision]) -> State:
    """Fold a tick and its round."""
    at_us = max(state.ticked_at_us, MADE_AT_US) + 1_000
    ticked = Meta(event_id=at_us.to_bytes(16, "big"), actor="benchmark", at_us=at_us)
    state = fed(state, [ClockTicked(meta=ticked, ticker="benchmark")])
    for decision in decisions:
        state = apply_decision(state, decision)
    return finish_round(state, more=False)


def reports(state: State) -> list[bytes]:
    """Return encoded what every live job reports, its own events in order, those of different jobs mixed."""
    jobs = [job for _, job in sorted(state.jobs.items()) if job.attempt is not None]
    assert len(jobs) == LIVE_JOBS, f"{len(jobs)} jobs run"
    queues = [
        [submission(LIVE_JOBS + number), *report_events(job.job_id, job.attempt.bound.shares[0].node_id)]
        for number, job in enumerate(jobs)
        if job.attempt is not None
    ]
    order = [number for number, queue in enumerate(queues) for _ in queue]
    random.Random(SEED).shuffle(order)  # noqa: S311 - a fixed order, nothing secret
    following = [iter(queue) for queue in queues]
    return [codec.encode(next(following[number])) for number in order]


def all_ended(state: State) -> bool:
    """Whether every report has had its effect: two checkpoints a job, its rank gone, as many commands waiting."""
    effects = [
        len(job.uploads) == 2 and job.attempt is not None and all(status.gone for status in job.attempt.status)
        for _, job in sorted(state.jobs.items())
    ]
    return len(effects) == LIVE_JOBS == len(state.commands) and all(effects)


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the garbage collector away from what is there already, as the loop does after its start."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
