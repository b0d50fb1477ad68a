"""Events of `control` and `heartbeats`: commands of people, facts of agents, ticks of the loop."""

from gangline.events.types import CheckpointRef, Event, Gpu, Int32, JobSpec, Policy, RankExit


class LogCreated(Event, frozen=True, kw_only=True):
    """Record 0 of `control` and of `decisions`; later ones are ignored."""

    log_id: str
    format: Int32


class SubmitJob(Event, frozen=True, kw_only=True):
    """Command: run this."""

    spec: JobSpec


class CancelJob(Event, frozen=True, kw_only=True):
    """Command: stop this job, now or before it starts."""

    job_id: str
    reason: str = ""


class ActivatePolicy(Event, frozen=True, kw_only=True):
    """Command: from the next tick on, decide by this policy."""

    policy: Policy


class NodeRegistered(Event, frozen=True, kw_only=True):
    """An agent has started on a node; what the node has."""

    node_id: str
    boot_id: str
    agent_id: str
    address: str
    pod: str
    gpu_type: str
    gpus: tuple[Gpu, ...]
    cpu_milli: int
    memory_bytes: int


class RanksStarted(Event, frozen=True, kw_only=True):
    """A node's share of a gang runs, its output in `run_dir` on that node."""

    job_id: str
    attempt: Int32
    node_id: str
    run_dir: str


class RanksExited(Event, frozen=True, kw_only=True):
    """Ranks of a node's share have ended; `gone` when no process of the share is left, so that its GPUs are free."""

    job_id: str
    attempt: Int32
    node_id: str
    exits: tuple[RankExit, ...]
    gone: bool


class LaunchFailed(Event, frozen=True, kw_only=True):
    """A node's share could not be started, and no process of it is left."""

    job_id: str
    attempt: Int32
    node_id: str
    reason: str
    retryable: bool


class CheckpointUploaded(Event, frozen=True, kw_only=True):
    """A manifest and every file that it names are stored and verified."""

    job_id: str
    attempt: Int32
    checkpoint: CheckpointRef
    size_bytes: int


class CheckpointRejected(Event, frozen=True, kw_only=True):
    """A checkpoint that a binding named did not verify when `attempt` wanted to restore it."""

    job_id: str
    attempt: Int32
    checkpoint: CheckpointRef
    reason: str


class TickerTookOver(Event, frozen=True, kw_only=True):
    """From here on only this ticker's ticks count."""

    ticker: str


class ClockTicked(Event, frozen=True, kw_only=True):
    """A round is decided here; `meta.at_us` is the ticker's clock."""

    ticker: str


class Heartbeat(Event, frozen=True, kw_only=True):
    """A node's agent is alive; `sequence` counts its beats from 0."""

    node_id: str
    boot_id: str
    agent_id: str
    sequence: int


COMMANDS = (SubmitJob, CancelJob, ActivatePolicy)
CONTROL_EVENTS: tuple[type[Event], ...] = (
    LogCreated,
    *COMMANDS,
    NodeRegistered,
    RanksStarted,
    RanksExited,
    LaunchFailed,
    CheckpointUploaded,
    CheckpointRejected,
    TickerTookOver,
    ClockTicked,
)
