"""The parts that events share: who said it and when, and the values inside them."""

from typing import Annotated, Literal

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An Avro int. fastavro reads a longer one without complaint, and then cannot write it again."""

StopReason = Literal["rank_failed", "cancelled", "max_runtime", "idle", "node_lost"]
Blame = Literal["neither", "job", "node"]
"""Whose fault a failed launch was; neither's where something else, such as a port in use, was in the way."""
Outcome = Literal["failed", "succeeded", "cancelled"]
Topology = Literal["none", "node", "pod"]
"""Within what a gang stays: anything, one node, one pod."""
PreemptionReason = Literal[
    "reclaim",
    "priority",
    "service",
    "recovery",
    "first_start",
    "fill",
    "batch",
    "move",
    "grow",
    "shrink",
    "drain",
    "straggler",
    "held",
    "retried",
]

WHOLE_MILLI = 1000
"""Thousandths of a whole GPU."""
MILLION = 1_000_000
"""What `_ppm` counts in."""
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
MIB = 1 << 20
GIB = 1 << 30


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A frozen part of an event or of the state."""


class Meta(Value, frozen=True, kw_only=True):
    """What every event begins with. `at_us` is the actor's own clock; nothing is ordered by it."""

    event_id: bytes
    command_id: bytes | None = None
    actor: str
    at_us: int
    cause: str | None = None


class Event(Value, frozen=True, kw_only=True):
    """Something that happened (past tense), or a command (imperative), as a record of the log."""

    meta: Meta


class Decision(Value, frozen=True, kw_only=True):
    """One consequence inside a round; its time and author are the round's."""


class Code(Value, frozen=True, kw_only=True):
    """A content-addressed bundle of a job's code."""

    uri: str
    sha256: str
    size_bytes: int
    commit: str | None
    dirty: bool


class Role(Value, frozen=True, kw_only=True):
    """Further ranks of a gang beside its GPUs' own, such as actors that need CPUs only."""

    name: str
    ranks: Int32
    gpu_milli: Int32 = 0
    """Of one GPU, a rank; 0 for none."""
    cpu_milli: int = 0
    memory_bytes: int = 0
    command: tuple[str, ...] = ()
    """Empty for the job's own."""


class Elastic(Value, frozen=True, kw_only=True):
    """Between which sizes a gang may be run, in steps of `step_gpus`; `gpus` is the most while others wait."""

    min_gpus: Int32
    max_gpus: Int32
    step_gpus: Int32 = 1


class JobSpec(Value, frozen=True, kw_only=True):
    """What a job asks for. `cpu_milli` and `memory_bytes` are per rank; every GPU has one rank, no GPU one in all."""

    name: str
    queue: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    gpus: Int32
    gpu_milli: Int32 = 1000
    nodes: Int32 | None = None
    gpu_types: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    priority: Int32 = 0
    retries: Int32 | None = None
    max_runtime_us: int | None = None
    grace_us: int | None = None
    code: Code | None = None
    checkpoints: str | None = None
    preemptible: bool = True
    """Whether it may be stopped and requeued for others; only such a job may borrow."""
    topology_required: Topology = "none"
    topology_preferred: Topology = "none"
    elastic: Elastic | None = None
    interactive: bool = False
    """Ends when idle for `idle_timeout_us`."""
    idle_timeout_us: int | None = None
    """Null takes the policy's."""
    roles: tuple[Role, ...] = ()
    """Started with the GPUs' ranks, all together or not at all; their ranks come behind."""
    array: Int32 | None = None
    """So many tasks of this spec, told apart by GANGLINE_ARRAY_INDEX from 0 on."""
    array_parallel: Int32 | None = None
    """Tasks that may run at a time; null for all."""
    after: tuple[str, ...] = ()
    """Jobs that have to succeed first."""
    data_bytes: int = 0
    """What it will write; held back while storage is under pressure, if it is much."""
    held: bool = False
    """Not to be started before it is released."""
    notify: tuple[str, ...] = ()
    """URLs that are told when it starts, is preempted, fails or ends."""


class Gpu(Value, frozen=True, kw_only=True):
    """One device of a node; `uuid` is empty for a declared slot, `memory_bytes` 0 where it is not known."""

    index: Int32
    uuid: str = ""
    memory_bytes: int = 0


class RankExit(Value, frozen=True, kw_only=True):
    """How a rank ended: its exit code, or minus the number of the signal that killed it."""

    rank: Int32
    exit_code: Int32


class AttemptRef(Value, frozen=True, kw_only=True):
    """Names an attempt of a job."""

    job_id: str
    attempt: Int32


class CheckpointRef(Value, frozen=True, kw_only=True):
    """A checkpoint by place (URI of its folder) and content (SHA-256 of its manifest.json, hex)."""

    step: int
    uri: str
    manifest_sha256: str


class Evidence(Value, frozen=True, kw_only=True):
    """What a fact about a node rests on: a place on `heartbeats`, and the last beats before it, for people."""

    topic: str
    partition: Int32
    offset: int
    summary: str


class RoleLaunch(Value, frozen=True, kw_only=True):
    """What the ranks of a role run."""

    name: str
    command: tuple[str, ...]


class Share(Value, frozen=True, kw_only=True):
    """One node's part of a placement; its ranks are `first_rank` and those behind it."""

    node_id: str
    address: str
    gpus: tuple[Int32, ...]
    gpu_milli: Int32
    cpu_milli: int
    memory_bytes: int
    first_rank: Int32
    role: str = ""
    """Empty for the job's own ranks. Shares of several roles may lie on one node."""
    rank_count: Int32 | None = None
    """Null for one rank a GPU."""

    @property
    def ranks(self) -> range:
        """The global ranks that run here."""
        count = len(self.gpus) if self.rank_count is None else self.rank_count
        return range(self.first_rank, self.first_rank + count)
