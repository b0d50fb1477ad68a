"""Drives loops by hand: a log, a clock that only the test moves, inputs that are the same in every run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gangline.events import codec, identity, ids
from gangline.events.control import (
    ActivatePolicy,
    CancelJob,
    CheckpointUploaded,
    ClockTicked,
    LaunchFailed,
    NodeRegistered,
    RanksExited,
    RanksStarted,
    SubmitJob,
    TickerTookOver,
)
from gangline.events.decisions import AttemptStopOrdered, GangBound
from gangline.events.history import HistoryReader
from gangline.events.log import CONTROL, DECISIONS, START, Address, Entry, Log, Position, Reader, Record
from gangline.events.memory import MemoryLog
from gangline.events.policy import Policy
from gangline.events.types import CheckpointRef, Decision, Event, Gpu, JobSpec, Meta, RankExit
from gangline.scheduler.loop import Loop
from gangline.scheduler.snapshot_store import SnapshotStore

SECOND_US = 1_000_000
START_US = 1_750_000_000 * SECOND_US
CODE = "a" * 64
OTHER_CODE = "b" * 64
STEPS = 3_000
"""Bounds how long a test waits for a loop, in steps."""


class Clock:
    """Both clocks of a machine; `wall_offset_us` is how wrong its wall clock is."""

    def __init__(self, monotonic_s: float = 1000.0) -> None:
        self.now_s = monotonic_s
        self.wall_offset_us = 0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return START_US + int(self.now_s * SECOND_US) + self.wall_offset_us

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class Inputs:
    """Makes events with ids that depend on `name` and their number alone, so that a history is the same each time."""

    def __init__(self, log_id: str, name: str = "inputs") -> None:
        self.log_id = log_id
        self._name = name
        self._count = 0

    def meta(self, command_id: bytes | None = None, *, same_as: str | None = None) -> Meta:
        self._count += 1
        what = same_as or f"{self._name}-{self._count}"
        return Meta(
            event_id=ids.derived(self.log_id, 0, what),
            command_id=command_id,
            actor="test",
            at_us=START_US + self._count,
        )

    def command_id(self) -> bytes:
        made_ms = START_US // 1000
        return made_ms.to_bytes(6, "big") + ids.derived(self.log_id, self._count, f"{self._name}-command")[6:]

    def policy(self, **changes: object) -> ActivatePolicy:
        policy = Policy(**changes)  # type: ignore[arg-type] # the fields are those of Policy
        return ActivatePolicy(meta=self.meta(self.command_id()), policy=policy)

    def node(self, number: int = 0, gpus: int = 2) -> NodeRegistered:
        return NodeRegistered(
            meta=self.meta(),
            node_id=f"node-{number}",
            boot_id="boot",
            agent_id="agent",
            address=f"10.0.0.{number}",
            pod="pod-0",
            gpu_type="declared",
            gpus=tuple(Gpu(index=index) for index in range(gpus)),
            cpu_milli=8_000,
            memory_bytes=1 << 33,
        )

    def submit(self, **changes: object) -> SubmitJob:
        fields: dict[str, object] = {"name": "train", "queue": "default", "command": ("true",), "gpus": 1} | changes
        spec = JobSpec(**fields)  # type: ignore[arg-type] # the fields are those of JobSpec
        return SubmitJob(meta=self.meta(self.command_id()), spec=spec)

    def cancel(self, job_id: str) -> CancelJob:
        return CancelJob(meta=self.meta(self.command_id()), job_id=job_id)

    def started(self, bound: GangBound) -> list[Event]:
        return [
            RanksStarted(
                meta=self.meta(same_as=f"{bound.job_id}-{bound.attempt}-{share.node_id}-started"),
                job_id=bound.job_id,
                attempt=bound.attempt,
                node_id=share.node_id,
                run_dir="/run",
            )
            for share in bound.shares
        ]

    def exited(self, bound: GangBound, code: int = 0) -> list[Event]:
        return [
            RanksExited(
                meta=self.meta(same_as=f"{bound.job_id}-{bound.attempt}-{share.node_id}-exited"),
                job_id=bound.job_id,
                attempt=bound.attempt,
                node_id=share.node_id,
                exits=tuple(RankExit(rank=rank, exit_code=code) for rank in share.ranks),
                gone=True,
            )
            for share in bound.shares
        ]

    def failed(self, bound: GangBound) -> LaunchFailed:
        return LaunchFailed(
            meta=self.meta(),
            job_id=bound.job_id,
            attempt=bound.attempt,
            node_id=bound.shares[0].node_id,
            reason="no such command",
            retryable=False,
        )

    def uploaded(self, bound: GangBound, step: int) -> CheckpointUploaded:
        return CheckpointUploaded(
            meta=self.meta(same_as=f"{bound.job_id}-{bound.attempt}-uploaded-{step}"),
            job_id=bound.job_id,
            attempt=bound.attempt,
            checkpoint=CheckpointRef(step=step, uri=f"/ckpt/{bound.job_id}/{step}", manifest_sha256="d" * 64),
            size_bytes=1,
        )


class Agents:
    """Every node's agent at once: reads what is bound and says what they would report."""

    def __init__(self, log: Log, inputs: Inputs) -> None:
        self._history = HistoryReader(log)
        self._inputs = inputs
        self._bound: dict[tuple[str, int], GangBound] = {}
        self.decisions: list[Decision] = []

    def report(self) -> list[Event]:
        """Return the facts that follow from what was decided since; jobs named `fails` fail at their first attempt."""
        facts: list[Event] = []
        for segment in self._history.read_to_end():
            for decision in segment.decisions:
                self.decisions.append(decision)
                if isinstance(decision, GangBound):
                    self._bound[decision.job_id, decision.attempt] = decision
                    facts += self._inputs.started(decision)
                    facts.append(self._inputs.uploaded(decision, decision.attempt))
                    if decision.name != "runs":
                        facts += self._inputs.exited(decision, int(decision.name == "fails" and decision.attempt == 1))
                elif isinstance(decision, AttemptStopOrdered):
                    facts += self._inputs.exited(self._bound[decision.job_id, decision.attempt], -15)
        return facts

    def close(self) -> None:
        self._history.close()


class Killed(Exception):
    """Ends a loop where a kill would."""


class HookedLog:
    """A loop's view of a log, which calls the test before it appends."""

    def __init__(self, log: Log, before_append: Callable[[Event], None]) -> None:
        self._log = log
        self._before_append = before_append

    def append(self, topic: str, entries: Sequence[Entry], *, partition: int = 0) -> list[Address]:
        for entry in entries:
            event = codec.decode(entry.value)
            assert isinstance(event, Event)
            self._before_append(event)
        return self._log.append(topic, entries, partition=partition)

    def reader(self, topic: str, position: Position = START, *, partition: int = 0) -> Reader:
        return self._log.reader(topic, position, partition=partition)

    def close(self) -> None:
        self._log.close()


class World:
    """A log, a folder of snapshots, a clock, and the loops that a test starts."""

    def __init__(self, folder: Path, log: Log | None = None) -> None:
        self.log: Log = log or MemoryLog()
        self.log_id = identity.create(self.log, actor="test")
        self.folder = folder / "snapshots"
        self.clock = Clock()
        self.inputs = Inputs(self.log_id)

    @property
    def store(self) -> SnapshotStore:
        return SnapshotStore(self.folder, self.log_id)

    def loop(
        self, code_digest: str = CODE, *, open_term: bool = True, log: Log | None = None, **changes: object
    ) -> Loop:
        options: dict[str, object] = {"wall_us": self.clock.wall_us, "monotonic_s": self.clock.monotonic_s} | changes
        return Loop(
            log or self.log,
            self.store,
            code_digest=code_digest,
            open_term=open_term,
            **options,  # type: ignore[arg-type] # the options are those of Loop
        )

    def put(self, *inputs: Event | bytes) -> int:
        """Append to control; return the offset of the last one, which is its index in these logs."""
        values = [one if isinstance(one, bytes) else codec.encode(one) for one in inputs]
        return self.log.append(CONTROL, [Entry(b"", value) for value in values])[-1].offset

    def control(self) -> list[Record]:
        return read_all(self.log, CONTROL)

    def decisions(self) -> list[Record]:
        return read_all(self.log, DECISIONS)

    def run_until(self, condition: Callable[[], bool], *loops: Loop, step_s: float = 0.05) -> None:
        """Step the loops in turn, moving the clock, until something holds."""
        for _ in range(STEPS):
            if condition():
                return
            for loop in loops:
                loop.step(0.0)
            self.clock.advance(step_s)
        raise AssertionError(f"did not come about within {STEPS} steps")

    def settle(self, *loops: Loop, step_s: float = 0.05) -> None:
        """Step the loops until the first of them has read rounds that cover all inputs and wants no more at once."""

        def settled() -> bool:
            follower = loops[0].follower
            due_at_once = follower.state.more or follower.state.placement_due
            return follower.terms.decided >= self.last_input() and not due_at_once

        self.run_until(settled, *loops, step_s=step_s)

    def last_input(self) -> int:
        """Return the index of the last record of control that is no tick."""
        header = codec.header_of(ClockTicked)
        return next(record.index for record in reversed(self.control()) if not record.value.startswith(header))

    def takeovers(self) -> list[str]:
        """Return the tickers that took over, in order."""
        header = codec.header_of(TickerTookOver)
        events = [codec.decode(record.value) for record in self.control() if record.value.startswith(header)]
        return [event.ticker for event in events if isinstance(event, TickerTookOver)]

    def starts(self, nodes: int = 2, **policy: object) -> Loop:
        """Return a loop that is the ticker of a log with a policy and nodes."""
        loop = self.loop()
        self.put(self.inputs.policy(**policy), *(self.inputs.node(number) for number in range(nodes)))
        self.settle(loop)
        assert loop.active
        return loop


def read_all(log: Log, topic: str) -> list[Record]:
    reader = log.reader(topic)
    try:
        return [record for records in reader.read_to_end() for record in records]
    finally:
        reader.close()
