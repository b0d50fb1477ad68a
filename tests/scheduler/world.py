"""Drives the core through evolve and decide alone: appends events, ticks, and keeps the history that this makes."""

from typing import NamedTuple, TypeVar

from gangline.events import codec, ids
from gangline.events.control import (
    ActivatePolicy,
    CancelJob,
    CheckpointRejected,
    CheckpointUploaded,
    CheckpointUploadStarted,
    ClockTicked,
    JobIdled,
    LaunchFailed,
    LogCreated,
    NodeChecked,
    NodeFaulted,
    NodeLost,
    NodeRecovered,
    NodeRegistered,
    RanksExited,
    RankSlow,
    RanksStarted,
    SubmitJob,
    TickerTookOver,
)
from gangline.events.decisions import RoundDecided
from gangline.events.policy import RULES, Policy
from gangline.events.types import AttemptRef, Blame, CheckpointRef, Decision, Event, Gpu, JobSpec, Meta, RankExit
from gangline.scheduler import decide, evolve
from gangline.scheduler.canonical import to_bytes
from gangline.scheduler.decide import next_due_us, round_is_due
from gangline.scheduler.errors import Inapplicable
from gangline.scheduler.round import Round
from gangline.scheduler.state import Attempt, Job, State
from gangline.scheduler.views import Views

GIB = 1 << 30
SECOND_US = 1_000_000
START_US = 1_750_000_000 * SECOND_US
LOG_ID = "log-of-tests"
CATCH_UP_TICKS = 100_000
"""Bounds the ticks that a world runs by itself."""

D = TypeVar("D", bound=Decision)


class Record(NamedTuple):
    """A record of `control`, the round that follows on it, if any, and the state's bytes behind both, if kept."""

    value: bytes
    round: bytes | None
    state: bytes | None


def decided_by_every_rule(state: State) -> list[Decision]:
    """Return what the rules decide at a tick if each is asked, whether or not the tick brings anything."""
    round_ = Round(state, Views())
    for rule in decide.RULES:
        rule(round_)
    return round_.decisions


class World:
    """A log, a clock and a core. `control[i]` is record i; `decided` holds what the last tick decided."""

    def __init__(
        self,
        policy: Policy | None = Policy(),  # noqa: B008 - frozen
        *,
        keep_states: bool = False,
        log_id: str = LOG_ID,
    ) -> None:
        self.log_id = log_id
        self.state = State()
        self.views = Views()
        """Kept from round to round, as a loop does."""
        self.control: list[Record] = []
        self.decided: list[Decision] = []
        self.at_us = START_US
        self.term = 1
        self._keep_states = keep_states
        self._made = 0
        self.append(LogCreated(meta=self.meta(), log_id=log_id, format=1))
        self.append(TickerTookOver(meta=self.meta(), ticker="t"))
        if policy is not None:
            self.activate(policy)
            self.tick()

    # --- the log ---

    def meta(self, command_id: bytes | None = None) -> Meta:
        event_id = ids.derived(self.log_id, len(self.control), "event")
        return Meta(event_id=event_id, command_id=command_id, actor="test", at_us=self.at_us)

    def command_id(self, *, ahead_us: int = 0) -> bytes:
        """Return a new UUIDv7 made now by this world's clock, the same in every run."""
        self._made += 1
        made_ms = (self.at_us + ahead_us) // 1000
        return made_ms.to_bytes(6, "big") + ids.derived(self.log_id, self._made, "command")[6:]

    def append(self, event: Event) -> int:
        return self.append_bytes(codec.encode(event))

    def append_bytes(self, value: bytes) -> int:
        """Append a record, fold it as a loop does, and return its index."""
        index = len(self.control)
        try:
            event = codec.decode(value)
            assert isinstance(event, Event)
            self.state = evolve.evolve(self.state, index, event)
        except (codec.Undecodable, Inapplicable) as error:
            self.state = evolve.fail(self.state, index, str(error))
        self.control.append(Record(value, None, to_bytes(self.state) if self._keep_states else None))
        return index

    def tick(self, seconds: int = 1, *, ticker: str = "t") -> list[Decision]:
        """Let the clock go on, tick, decide and fold the encoded round; return its decisions."""
        self.at_us += seconds * SECOND_US
        index = self.append(ClockTicked(meta=self.meta(), ticker=ticker))
        self.decided = []
        if not round_is_due(self.state):
            return []
        record, after, decisions = decide.decide(self.state, self.term, self.views)
        assert decide.decide(self.state, self.term).record == record, "kept indexes decide otherwise than rebuilt ones"
        if record is None:
            assert after is self.state, "a tick without a round left a trace"
            assert not decided_by_every_rule(self.state), "a tick was passed over at which something was due"
            return []
        value = codec.encode(record)
        read = codec.decode(value)
        assert isinstance(read, RoundDecided)
        self.decided = [codec.decode(inner) for inner in read.decisions]  # type: ignore[misc] # they are decisions
        assert tuple(self.decided) == decisions, "the round's record says something else than what was decided"
        folded = evolve.evolve_round(self.state, read, self.decided)
        assert folded == after, "folding the round gives another state than deciding it"
        self.state = folded
        state = to_bytes(folded) if self._keep_states else None
        self.control[index] = self.control[index]._replace(round=value, state=state)
        return self.decided

    def passes(self, seconds: int) -> list[Decision]:
        """Let core time pass in ticks of 5 s, the most that one counts for; return what they decide."""
        decided: list[Decision] = []
        for _ in range(-(-seconds // 5)):
            decided += self.tick(5)
        return decided

    def settle(self) -> list[Decision]:
        """Tick without letting time pass while something is due at once; return what that decides."""
        decided = list(self.tick(0))
        for _ in range(CATCH_UP_TICKS):
            due_us = next_due_us(self.state)
            if due_us is None or due_us > self.state.now_us:
                return decided
            decided += self.tick(0)
        raise AssertionError("something is due at once for ever")

    # --- commands ---

    def spec(self, **changes: object) -> JobSpec:
        fields: dict[str, object] = {"name": "train", "queue": "default", "command": ("true",), "gpus": 1} | changes
        return JobSpec(**fields)  # type: ignore[arg-type] # the fields are those of JobSpec

    def submit(self, command_id: bytes | None = None, /, **changes: object) -> str:
        """Submit a job; return the id that it has if it is admitted."""
        command_id = command_id or self.command_id()
        self.append(SubmitJob(meta=self.meta(command_id), spec=self.spec(**changes)))
        return ids.job_id(self.log_id, command_id)

    def cancel(self, job_id: str, command_id: bytes | None = None) -> None:
        self.append(CancelJob(meta=self.meta(command_id or self.command_id()), job_id=job_id))

    def activate(self, policy: Policy) -> None:
        self.append(ActivatePolicy(meta=self.meta(self.command_id()), policy=policy))

    def command(self, kind: type[Event], **fields: object) -> int:
        """Append another command, and return its index."""
        return self.append(kind(meta=self.meta(self.command_id()), **fields))

    def checks(self, node_id: str, *, healthy: bool = True, index: int | None = None, report: str = "") -> None:
        """Report what an agent found when it examined its node: as it was asked last, or by the command at `index`."""
        asked = self.state.nodes[node_id].check_index if index is None else index
        assert asked is not None, f"nobody has asked to examine {node_id}"
        self.append(NodeChecked(meta=self.meta(), node_id=node_id, check_index=asked, healthy=healthy, report=report))

    # --- facts ---

    def node(
        self,
        node_id: str,
        gpus: int | tuple[int, ...] = 8,
        *,
        pod: str = "pod-0",
        gpu_type: str = "H100",
        cpu_milli: int = 64_000,
        memory_bytes: int = 512 * GIB,
        boot_id: str = "boot",
        agent_id: str = "agent",
        attempts: tuple[AttemptRef, ...] | None = None,
    ) -> None:
        indexes = range(gpus) if isinstance(gpus, int) else gpus
        self.append(
            NodeRegistered(
                meta=self.meta(),
                node_id=node_id,
                boot_id=boot_id,
                agent_id=agent_id,
                address=f"{node_id}.cluster",
                pod=pod,
                gpu_type=gpu_type,
                gpus=tuple(Gpu(index=index) for index in indexes),
                cpu_milli=cpu_milli,
                memory_bytes=memory_bytes,
                attempts=attempts or (),
                attempts_listed=attempts is not None,
            )
        )

    def loses(self, node_id: str, *, boot_id: str = "boot") -> None:
        self.append(NodeLost(meta=self.meta(), node_id=node_id, boot_id=boot_id))

    def recovers(self, node_id: str, *, boot_id: str = "boot") -> None:
        self.append(NodeRecovered(meta=self.meta(), node_id=node_id, boot_id=boot_id))

    def breaks(self, node_id: str, gpu: int | None = None, reason: str = "Xid 79: it fell off the bus") -> None:
        self.append(NodeFaulted(meta=self.meta(), node_id=node_id, gpu=gpu, reason=reason))

    def starts(self, job_id: str, node_id: str | None = None) -> None:
        bound = self.attempt(job_id).bound
        for share in bound.shares:
            if node_id in {None, share.node_id}:
                self.append(
                    RanksStarted(
                        meta=self.meta(), job_id=job_id, attempt=bound.attempt, node_id=share.node_id, run_dir="/run"
                    )
                )

    def exits(
        self, job_id: str, code: int = 0, *, node_id: str | None = None, rank: int | None = None, gone: bool = True
    ) -> None:
        """Report ranks of the live attempt ended: all of them, those on a node, or one."""
        bound = self.attempt(job_id).bound
        for share in bound.shares:
            ranks = [one for one in share.ranks if rank in {None, one}]
            if ranks and node_id in {None, share.node_id}:
                self.append(
                    RanksExited(
                        meta=self.meta(),
                        job_id=job_id,
                        attempt=bound.attempt,
                        node_id=share.node_id,
                        exits=tuple(RankExit(rank=one, exit_code=code) for one in ranks),
                        gone=gone,
                    )
                )

    def gone(self, job_id: str, node_id: str | None = None) -> None:
        """Report that no process is left, and no exit code known."""
        bound = self.attempt(job_id).bound
        for share in bound.shares:
            if node_id in {None, share.node_id}:
                self.left(job_id, bound.attempt, share.node_id)

    def cannot_start(
        self,
        job_id: str,
        reason: str,
        *,
        node_id: str | None = None,
        retryable: bool = False,
        blame: Blame = "neither",
    ) -> None:
        bound = self.attempt(job_id).bound
        for share in bound.shares:
            if node_id in {None, share.node_id}:
                self.append(
                    LaunchFailed(
                        meta=self.meta(),
                        job_id=job_id,
                        attempt=bound.attempt,
                        node_id=share.node_id,
                        reason=reason,
                        retryable=retryable,
                        blame=blame,
                    )
                )

    def checkpoint(self, job_id: str, step: int, *, attempt: int | None = None) -> CheckpointRef:
        number = self.job(job_id).attempts if attempt is None else attempt
        ref = CheckpointRef(step=step, uri=f"file:///{job_id}/{number}/{step}", manifest_sha256=f"{step:064x}")
        self.append(
            CheckpointUploaded(meta=self.meta(), job_id=job_id, attempt=number, checkpoint=ref, size_bytes=1_000)
        )
        return ref

    def left(self, job_id: str, attempt: int, node_id: str) -> None:
        """Report gone what an attempt, which may have ended, had on a node."""
        self.append(RanksExited(meta=self.meta(), job_id=job_id, attempt=attempt, node_id=node_id, exits=(), gone=True))

    def uploads(self, job_id: str, step: int) -> None:
        """Report that a checkpoint of the latest attempt is being stored."""
        attempt = self.job(job_id).attempts
        self.append(CheckpointUploadStarted(meta=self.meta(), job_id=job_id, attempt=attempt, step=step))

    def idles(self, job_id: str, seconds: int, *, attempt: int | None = None) -> None:
        number = self.job(job_id).attempts if attempt is None else attempt
        self.append(JobIdled(meta=self.meta(), job_id=job_id, attempt=number, idle_us=seconds * SECOND_US))

    def is_slow(self, job_id: str, rank: int, *, slowness_ppm: int = 1_500_000) -> None:
        bound = self.attempt(job_id).bound
        (node_id,) = [share.node_id for share in bound.shares if rank in share.ranks]
        slow = RankSlow(
            meta=self.meta(),
            job_id=job_id,
            attempt=bound.attempt,
            node_id=node_id,
            rank=rank,
            slowness_ppm=slowness_ppm,
        )
        self.append(slow)

    def rejects(self, job_id: str, checkpoint: CheckpointRef) -> None:
        self.append(
            CheckpointRejected(
                meta=self.meta(),
                job_id=job_id,
                attempt=self.job(job_id).attempts,
                checkpoint=checkpoint,
                reason="a shard's hash differs",
            )
        )

    # --- what there is ---

    def job(self, job_id: str) -> Job:
        return self.state.jobs[job_id]

    def attempt(self, job_id: str) -> Attempt:
        attempt = self.job(job_id).attempt
        assert attempt is not None, f"{job_id} has no live attempt"
        return attempt

    def is_running(self, job_id: str) -> bool:
        return job_id in self.state.jobs and self.state.jobs[job_id].attempt is not None

    def placement(self, job_id: str) -> list[tuple[str, tuple[int, ...]]]:
        """Return (node, GPU indexes) of a job's shares in rank order."""
        return [(share.node_id, share.gpus) for share in self.attempt(job_id).bound.shares]

    def nodes_of(self, job_id: str) -> list[str]:
        return [node_id for node_id, _ in self.placement(job_id)]

    def free(self, node_id: str) -> int:
        """Return how many devices of a node are wholly free."""
        return self.state.nodes[node_id].whole_free

    def runs(self, **changes: object) -> str:
        """Submit a job that fits now, and let it start."""
        job_id = self.submit(**changes)
        self.tick()
        assert self.is_running(job_id), self.decided
        return job_id


def the(kind: type[D], decided: list[Decision]) -> D:
    """Return the only decision of a kind."""
    (found,) = all_of(kind, decided)
    return found


def all_of(kind: type[D], decided: list[Decision]) -> list[D]:
    return [one for one in decided if isinstance(one, kind)]


def rules_without(name: str) -> tuple[str, ...]:
    """Return all rules but this one."""
    assert name in RULES, f"there is no rule {name!r}"
    return tuple(rule for rule in RULES if rule != name)
