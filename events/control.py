"""Events of `control` and `heartbeats`: commands of people, facts of agents, ticks of the loop."""

from gangline.events.policy import Policy, Queue
from gangline.events.types import AttemptRef, Blame, CheckpointRef, Event, Evidence, Gpu, Int32, JobSpec, RankExit


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


class SetQueue(Event, frozen=True, kw_only=True):
    """Command: add this queue, or change it."""

    queue: Queue


class RemoveQueue(Event, frozen=True, kw_only=True):
    """Command: remove a queue that has neither jobs nor queues in it."""

    path: str


class CordonNode(Event, frozen=True, kw_only=True):
    """Command: start nothing new on this node."""

    node_id: str
    reason: str = ""


class UncordonNode(Event, frozen=True, kw_only=True):
    """Command: use this node again, whether it was cordoned, drained or quarantined."""

    node_id: str


class DrainNode(Event, frozen=True, kw_only=True):
    """Command: start nothing new on this node, and requeue what runs there; jobs not preemptible end by themselves."""

    node_id: str
    reason: str = ""


class CheckNode(Event, frozen=True, kw_only=True):
    """Command: let the node's agent examine it."""

    node_id: str


class HoldJob(Event, frozen=True, kw_only=True):
    """Command: do not start this job before it is released; if it runs, requeue it."""

    job_id: str
    reason: str = ""


class ReleaseJob(Event, frozen=True, kw_only=True):
    """Command: let a held job start."""

    job_id: str


class RetryJob(Event, frozen=True, kw_only=True):
    """Command: begin the job's next attempt, its failures so far forgiven."""

    job_id: str


class ReprioritiseJob(Event, frozen=True, kw_only=True):
    """Command: give the job another priority inside its queue."""

    job_id: str
    priority: Int32


class NodeLost(Event, frozen=True, kw_only=True):
    """A node's agent is not heard of any more; what ran there is lost to its gang."""

    node_id: str
    boot_id: str
    evidence: Evidence | None = None


class NodeRecovered(Event, frozen=True, kw_only=True):
    """A lost node is heard of again; what its agent has not reported gone is still held there."""

    node_id: str
    boot_id: str
    evidence: Evidence | None = None


class NodeFaulted(Event, frozen=True, kw_only=True):
    """Hardware of a node failed: one GPU, or the node as a whole where `gpu` is null."""

    node_id: str
    gpu: Int32 | None
    reason: str


class NodeChecked(Event, frozen=True, kw_only=True):
    """What an agent found when it examined its node; a sick node is quarantined, a healthy one is no longer."""

    node_id: str
    check_index: int
    """Control index of the CheckNode that asked for it."""
    healthy: bool
    report: str


class CheckpointUploadStarted(Event, frozen=True, kw_only=True):
    """An attempt's checkpoint is being stored; the next attempt may wait for it."""

    job_id: str
    attempt: Int32
    step: int


class JobIdled(Event, frozen=True, kw_only=True):
    """The ranks of an interactive job have done nothing for so long."""

    job_id: str
    attempt: Int32
    idle_us: int


class RankSlow(Event, frozen=True, kw_only=True):
    """A rank is slower than its peers: its step takes `slowness_ppm` millionths of theirs."""

    job_id: str
    attempt: Int32
    node_id: str
    rank: Int32
    slowness_ppm: int


class StoragePressureChanged(Event, frozen=True, kw_only=True):
    """The store for checkpoints and data is nearly full, or no longer."""

    store: str
    pressed: bool
    used_ppm: int


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
    attempts: tuple[AttemptRef, ...] = ()
    """Those of which something may still run there."""
    attempts_listed: bool = False
    """Whether `attempts` says all, so that nothing is left of any other; false for an agent that does not know."""


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
    blame: Blame = "neither"


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


COMMANDS = (
    SubmitJob,
    CancelJob,
    ActivatePolicy,
    SetQueue,
    RemoveQueue,
    CordonNode,
    UncordonNode,
    DrainNode,
    CheckNode,
    HoldJob,
    ReleaseJob,
    RetryJob,
    ReprioritiseJob,
)
CONTROL_EVENTS: tuple[type[Event], ...] = (
    LogCreated,
    *COMMANDS,
    NodeRegistered,
    NodeLost,
    NodeRecovered,
    NodeFaulted,
    NodeChecked,
    RanksStarted,
    RanksExited,
    LaunchFailed,
    CheckpointUploadStarted,
    CheckpointUploaded,
    CheckpointRejected,
    JobIdled,
    RankSlow,
    StoragePressureChanged,
    TickerTookOver,
    ClockTicked,
)
