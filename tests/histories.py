"""Writes histories by hand: events on `control`, rounds and terms on `decisions`, as a loop would."""

from collections.abc import Sequence

from gangline.events import codec, identity, ids
from gangline.events.control import (
    ActivatePolicy,
    ClockTicked,
    NodeRegistered,
    RanksExited,
    RanksStarted,
    SubmitJob,
    TickerTookOver,
)
from gangline.events.decisions import GangBound, JobAdmitted, JobEnded, PolicyActivated, RoundDecided, TermOpened
from gangline.events.log import CONTROL, DECISIONS, Entry, Log
from gangline.events.policy import Policy
from gangline.events.types import Decision, Event, Gpu, JobSpec, Meta, Outcome, RankExit, Share

GIB = 1 << 30


class Script:
    """A history in the making; `index` counts the records of `control`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.log_id = identity.create(log, actor="test")
        self.index = 1
        self.term = 0
        self.at_us = 1_700_000_000_000_000

    def meta(self, command_id: bytes | None = None) -> Meta:
        self.at_us += 1_000_000
        event_id = ids.derived(self.log_id, self.index, f"test-{self.at_us}")
        return Meta(event_id=event_id, command_id=command_id, actor="test", at_us=self.at_us)

    def append(self, *events: Event) -> int:
        """Append to `control`; return the index of the last one."""
        self.log.append(CONTROL, [Entry(b"", codec.encode(event)) for event in events])
        self.index += len(events)
        return self.index - 1

    def append_bytes(self, value: bytes) -> int:
        self.log.append(CONTROL, [Entry(b"", value)])
        self.index += 1
        return self.index - 1

    def opens(self, control_index: int | None = None, term: int | None = None) -> TermOpened:
        """Open the next term, as of the last record of `control`."""
        opened = TermOpened(
            meta=self.meta(),
            term=self.term + 1 if term is None else term,
            previous=self.term if term is None else term - 1,
            control_index=self.index - 1 if control_index is None else control_index,
            code_digest="c" * 64,
            wheel=None,
            boundary_sha256=None,
            state_sha256="s" * 64,
        )
        self.term = opened.term
        self.log.append(DECISIONS, [Entry(b"", codec.encode(opened))])
        return opened

    def tick(self) -> ClockTicked:
        tick = ClockTicked(meta=self.meta(), ticker="t")
        self.append(tick)
        return tick

    def decides(self, *decisions: Decision, term: int | None = None) -> int:
        """Tick and write the round; return its index."""
        return self.writes(self.tick(), self.index - 1, decisions, term=term)

    def writes(
        self, tick: ClockTicked, tick_index: int, decisions: Sequence[Decision] = (), *, term: int | None = None
    ) -> int:
        decided = RoundDecided(
            meta=Meta(event_id=ids.derived(self.log_id, tick_index, "round"), actor="loop", at_us=tick.meta.at_us),
            tick_index=tick_index,
            tick_event_id=tick.meta.event_id,
            term=self.term if term is None else term,
            more=False,
            decisions=tuple(codec.encode(decision) for decision in decisions),
        )
        self.log.append(DECISIONS, [Entry(b"", codec.encode(decided))])
        return tick_index

    def starts(self) -> None:
        """Open the first term, activate the default policy, take over the ticker."""
        self.opens()
        command_id = ids.derived(self.log_id, self.index, "policy")
        index = self.append(ActivatePolicy(meta=self.meta(command_id), policy=Policy()))
        self.append(TickerTookOver(meta=self.meta(), ticker="t"))
        self.decides(PolicyActivated(command_id=command_id, control_index=index))

    def node(self, node_id: str = "node-0", gpus: int = 2) -> int:
        return self.append(
            NodeRegistered(
                meta=self.meta(),
                node_id=node_id,
                boot_id="boot",
                agent_id="agent",
                address="127.0.0.1",
                pod="pod-0",
                gpu_type="declared",
                gpus=tuple(Gpu(index=i) for i in range(gpus)),
                cpu_milli=2_000,
                memory_bytes=4 * GIB,
            )
        )

    def command_id(self) -> bytes:
        """Return an id made when the history says that it is, so that a history is the same each time."""
        made_ms = self.at_us // 1000
        return made_ms.to_bytes(6, "big") + ids.derived(self.log_id, self.index, "command")[6:]

    def submits(self, command_id: bytes, **changes: object) -> tuple[str, int]:
        fields: dict[str, object] = {"name": "train", "queue": "default", "command": ("true",), "gpus": 1} | changes
        spec = JobSpec(**fields)  # type: ignore[arg-type] # the fields are those of JobSpec
        index = self.append(SubmitJob(meta=self.meta(command_id), spec=spec))
        return ids.job_id(self.log_id, command_id), index

    def admits(self, **changes: object) -> str:
        """Submit a job and admit it in the next round."""
        command_id = self.command_id()
        job_id, index = self.submits(command_id, **changes)
        self.decides(JobAdmitted(command_id=command_id, control_index=index, job_id=job_id))
        return job_id

    def binds(self, job_id: str, attempt: int = 1, nodes: Sequence[str] = ("node-0",)) -> int:
        return self.decides(gang_bound(job_id, attempt, nodes))

    def runs(self, job_id: str, attempt: int = 1, node_id: str = "node-0", run_dir: str = "/runs") -> int:
        return self.append(
            RanksStarted(meta=self.meta(), job_id=job_id, attempt=attempt, node_id=node_id, run_dir=run_dir)
        )

    def exits(self, job_id: str, code: int, attempt: int = 1, node_id: str = "node-0", rank: int = 0) -> int:
        return self.append(
            RanksExited(
                meta=self.meta(),
                job_id=job_id,
                attempt=attempt,
                node_id=node_id,
                exits=(RankExit(rank=rank, exit_code=code),),
                gone=True,
            )
        )

    def ends(self, job_id: str, outcome: Outcome = "succeeded", attempts: int = 1) -> int:
        return self.decides(JobEnded(job_id=job_id, outcome=outcome, cause="because", attempts=attempts))


def gang_bound(job_id: str, attempt: int = 1, nodes: Sequence[str] = ("node-0",)) -> GangBound:
    return GangBound(
        job_id=job_id,
        attempt=attempt,
        shares=tuple(
            Share(
                node_id=node_id,
                address="127.0.0.1",
                gpus=(0,),
                gpu_milli=1000,
                cpu_milli=0,
                memory_bytes=0,
                first_rank=i,
            )
            for i, node_id in enumerate(nodes)
        ),
        world_size=len(nodes),
        master_address="127.0.0.1",
        master_port=20_000,
        resume=(),
        name="train",
        command=("true",),
        env={},
        grace_us=30_000_000,
        code=None,
        checkpoints=None,
    )
