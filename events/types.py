"""The parts that events share: who said it and when, and the values inside them."""

from typing import Annotated, Literal

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An Avro int. fastavro reads a longer one without complaint, and then cannot write it again."""

StopReason = Literal["rank_failed", "cancelled", "max_runtime"]
Outcome = Literal["failed", "succeeded", "cancelled"]


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


class JobSpec(Value, frozen=True, kw_only=True):
    """What a job asks for. `cpu_milli` and `memory_bytes` are per rank; every GPU has one rank."""

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


class Queue(Value, frozen=True, kw_only=True):
    """A node of the quota tree, `path` being org/team/project."""

    path: str


class Policy(Value, frozen=True, kw_only=True):
    """Every number that the scheduler decides by. The defaults are those of a new log."""

    queues: tuple[Queue, ...] = (Queue(path="default"),)
    retries: Int32 = 3
    grace_us: int = 30_000_000
    answers_kept_us: int = 7 * 24 * 3600 * 1_000_000
    ahead_limit_us: int = 3600 * 1_000_000
    port_first: Int32 = 20_000
    port_count: Int32 = 10_000
    checkpoints_kept: Int32 = 3


class Gpu(Value, frozen=True, kw_only=True):
    """One device of a node; `uuid` is empty for a declared slot, `memory_bytes` 0 where it is not known."""

    index: Int32
    uuid: str = ""
    memory_bytes: int = 0


class RankExit(Value, frozen=True, kw_only=True):
    """How a rank ended: its exit code, or minus the number of the signal that killed it."""

    rank: Int32
    exit_code: Int32


class CheckpointRef(Value, frozen=True, kw_only=True):
    """A checkpoint by place (URI of its folder) and content (SHA-256 of its manifest.json, hex)."""

    step: int
    uri: str
    manifest_sha256: str


class Share(Value, frozen=True, kw_only=True):
    """One node's part of a placement; its ranks are `first_rank` and as many as it has GPUs from there."""

    node_id: str
    address: str
    gpus: tuple[Int32, ...]
    gpu_milli: Int32
    cpu_milli: int
    memory_bytes: int
    first_rank: Int32

    @property
    def ranks(self) -> range:
        """The global ranks that run here."""
        return range(self.first_rank, self.first_rank + len(self.gpus))
