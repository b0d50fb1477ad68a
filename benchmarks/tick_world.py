"""A cluster in virtual time for the benchmark of rounds: the real core, and agents that report at the next round."""

import random
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from gangline.events import codec, ids
from gangline.events.control import (
    ActivatePolicy,
    ClockTicked,
    LogCreated,
    NodeRegistered,
    RanksExited,
    SubmitJob,
    TickerTookOver,
)
from gangline.events.decisions import (
    AttemptStopOrdered,
    GangBound,
    JobRejected,
    PolicyRefused,
    PreemptionOrdered,
)
from gangline.events.policy import Policy
from gangline.events.types import GIB, HOUR_US, SECOND_US, Decision, Event, Gpu, JobSpec, Meta, RankExit
from gangline.scheduler.decide import decide
from gangline.scheduler.evolve import evolve
from gangline.scheduler.state import State
from gangline.scheduler.views import Views

START_US = 1_750_000_000_000_000
STEP_US = 5 * SECOND_US
"""What a tick may count for at most, and so the time between two rounds here."""
POD_NODES = 32
GPUS = 8
GRACE_ROUNDS = 6
"""A preempted attempt saves for 30 s before it is gone."""
SMALL = ((1, 40), (2, 20), (4, 20), (8, 20))
GANGS = (64, 128, 256, 512, 1024)
GANGS_PER_SMALL = 0.533 / 221.9
"""Of the mix's arrivals."""
FRACTIONS = 0.1
PREEMPTIBLE = 0.7
LARGEST_FIXED = 256
"""GPUs of the largest job that is not preemptible."""
QUEUES = 40
"""That share the cluster; what is not preemptible asks for no more than the guarantee of its own."""
DECLARED = 0.5


class Took(NamedTuple):
    """Seconds by the clock, and seconds of CPU: other programs on the machine add to the first alone."""

    wall_s: float
    cpu_s: float


class Watch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._start = Took(time.perf_counter(), time.process_time())

    def took(self) -> Took:
        """Return how long that is ago."""
        return Took(time.perf_counter() - self._start.wall_s, time.process_time() - self._start.cpu_s)


def total(took: Sequence[Took]) -> Took:
    """Return the sum."""
    return Took(sum(one.wall_s for one in took), sum(one.cpu_s for one in took))


class TickWorld:
    """A log, a clock, a core that keeps its indexes, and what runs. `took` are the rounds' times so far."""

    def __init__(self, nodes: int, policy: Policy, seed: int = 1) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a fixed history, nothing secret
        self.state = State()
        self.views = Views()
        self.took: list[Took] = []
        self.running: dict[str, GangBound] = {}
        self._fixed_most = min(LARGEST_FIXED, nodes * GPUS // QUEUES)
        self._leaving: deque[list[str]] = deque([] for _ in range(GRACE_ROUNDS))
        self._events = 0
        self._at_us = START_US
        self._inputs: list[Event] = []
        self.append(LogCreated(meta=self.meta(), log_id="tick", format=1))
        self.append(TickerTookOver(meta=self.meta(), ticker="t"))
        self.append(ActivatePolicy(meta=self.meta(command=True), policy=policy))
        for number in range(nodes):
            self.append(self._registered(number))
        self.tick()

    def meta(self, *, command: bool = False) -> Meta:
        """Return what the next event begins with."""
        self._events += 1
        number = self._events.to_bytes(10, "big")
        command_id = (self._at_us // 1000).to_bytes(6, "big") + number if command else None
        return Meta(event_id=bytes(6) + number, command_id=command_id, actor="benchmark", at_us=self._at_us)

    def append(self, event: Event) -> None:
        """Put an event before the next round."""
        self._inputs.append(event)

    def submit(self, specs: Sequence[JobSpec]) -> list[str]:
        """Submit jobs; return their ids."""
        found = []
        for spec in specs:
            meta = self.meta(command=True)
            self.append(SubmitJob(meta=meta, spec=spec))
            found.append(ids.job_id("tick", meta.command_id or b""))
        return found

    def end(self, job_ids: Sequence[str]) -> None:
        """Report every rank of these jobs ended well, and gone."""
        for job_id in job_ids:
            bound = self.running.pop(job_id, None)
            if bound is None:
                continue
            for share in bound.shares:
                exits = tuple(RankExit(rank=rank, exit_code=0) for rank in share.ranks)
                self.append(
                    RanksExited(
                        meta=self.meta(),
                        job_id=job_id,
                        attempt=bound.attempt,
                        node_id=share.node_id,
                        exits=exits,
                        gone=True,
                    )
                )

    def tick(self, step_us: int = STEP_US) -> tuple[Decision, ...]:
        """Let time pass, fold what came, decide, encode and take the round over; return its decisions."""
        self.end(self._leaving.popleft())
        self._leaving.append([])
        self._at_us += step_us
        self.append(ClockTicked(meta=self.meta(), ticker="t"))
        inputs, self._inputs = self._inputs, []
        watch = Watch()
        for event in inputs:
            self.state = evolve(self.state, self.state.control_index + 1, event)
        decided = decide(self.state, 1, self.views)
        if decided.record is not None:
            codec.encode(decided.record)
            self.state = decided.state
        self.took.append(watch.took())
        for decision in decided.decisions:
            self._follow(decision)
        return decided.decisions

    def settle(self, rounds: int = 10_000) -> None:
        """Tick without inputs until nothing is left undone of a round that was full."""
        for _ in range(rounds):
            self.tick(0)
            if not (self.state.more or self.state.placement_due or self.state.commands):
                return
        raise AssertionError("the rounds never end")

    def pass_time(self, time_us: int) -> None:
        """Let time pass while nothing happens."""
        for _ in range(time_us // STEP_US):
            self.tick()

    @property
    def allocated_milli(self) -> int:
        """Thousandths of GPUs that run something."""
        return sum(len(share.gpus) * share.gpu_milli for bound in self.running.values() for share in bound.shares)

    def _follow(self, decision: Decision) -> None:
        if isinstance(decision, GangBound):
            self.running[decision.job_id] = decision
        elif isinstance(decision, PreemptionOrdered | AttemptStopOrdered):
            self._leaving[-1].append(decision.job_id)
        refused = decision.message if isinstance(decision, JobRejected | PolicyRefused) else None
        assert refused is None, refused

    def _registered(self, number: int) -> NodeRegistered:
        return NodeRegistered(
            meta=self.meta(),
            node_id=f"node-{number}",
            boot_id="boot",
            agent_id="agent",
            address=f"node-{number}.cluster",
            pod=f"pod-{number // POD_NODES}",
            gpu_type="h200",
            gpus=tuple(Gpu(index=index) for index in range(GPUS)),
            cpu_milli=128_000,
            memory_bytes=1024 * GIB,
        )

    # --- the mix ---

    def small(self, queue: str) -> JobSpec:
        """Return a small job of the mix."""
        sizes, weights = zip(*SMALL, strict=True)
        gpus = self.random.choices(sizes, weights)[0]
        milli = 1000
        if gpus == 1 and self.random.random() < FRACTIONS:
            milli = 10 * self.random.randint(10, 50)
        return self._spec(queue, gpus, milli, HOUR_US)

    def gang(self, queue: str, largest: int) -> JobSpec:
        """Return a gang of the mix of at most so many GPUs."""
        sizes = [size for size in GANGS if size <= largest]
        gpus = self.random.choices(sizes, [1 / size for size in sizes])[0]
        return self._spec(queue, gpus, 1000, 12 * HOUR_US)

    def arrival(self, queue: str) -> JobSpec:
        """Return a job as the mix's arrivals are."""
        if self.random.random() < GANGS_PER_SMALL:
            return self.gang(queue, GANGS[-1])
        return self.small(queue)

    def _spec(self, queue: str, gpus: int, milli: int, median_us: int) -> JobSpec:
        lasts_us = int(self.random.lognormvariate(0, 1.3) * median_us) + SECOND_US
        declared = int(lasts_us * self.random.uniform(1.2, 4)) if self.random.random() < DECLARED else None
        return JobSpec(
            name=f"mix-{self._events}",
            queue=queue,
            command=("python", "train.py"),
            gpus=gpus,
            gpu_milli=milli,
            cpu_milli=8_000,
            memory_bytes=64 * GIB,
            max_runtime_us=declared,
            preemptible=gpus > self._fixed_most or self.random.random() < PREEMPTIBLE,
        )
