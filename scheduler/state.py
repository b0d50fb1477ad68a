"""The state of the core: frozen structs in persistent maps, so that a hypothesis costs nothing to try and to drop.

Its size depends on what is live, not on history. Nothing here is read in a map's own order.
"""

from typing import Any

from immutables import Map

from gangline.events.control import CheckpointUploaded
from gangline.events.decisions import AttemptStopOrdered, GangBound, NodesReserved, PreemptionOrdered, RoomHeld
from gangline.events.policy import Policy
from gangline.events.types import Blame, CheckpointRef, Event, JobSpec, Outcome, PreemptionReason, Share, Value
from gangline.scheduler.worth import Seen


class ShareStatus(Value, frozen=True, kw_only=True):
    """How far a share of a live attempt is. Bit i of `exited` stands for its i-th rank."""

    started: bool = False
    exited: int = 0
    gone: bool = False
    lost: bool = False
    """Whether its node was lost under it: nothing is known of its processes, and the attempt does not wait for them."""

    @property
    def is_over(self) -> bool:
        """Whether the attempt need not wait for it."""
        return self.gone or self.lost


class SlowRank(Value, frozen=True, kw_only=True):
    """A rank that was reported slower than its peers, as a part of their time for a step, last by this event."""

    rank: int
    node_id: str
    reports: int = 0
    slowness_ppm: int = 0
    event_id: bytes = b""


class Attempt(Value, frozen=True, kw_only=True):
    """A live attempt: some of its GPUs may not be free yet. `status[i]` is that of `bound.shares[i]`."""

    bound: GangBound
    status: tuple[ShareStatus, ...]
    stop: AttemptStopOrdered | None = None
    failure: str | None = None
    blame: Blame = "job"
    """Whose fault the failure is."""
    retryable: bool = True
    bound_at_us: int = 0
    committed_at_us: int = 0
    """Core time of its last committed checkpoint, else of its binding: what was done since then would be lost."""
    preempted: PreemptionOrdered | None = None
    """Its stop, if it gives way to others."""
    idle_us: int | None = None
    """For how long it has done nothing, if it is interactive and was reported so."""
    slow: tuple[SlowRank, ...] = ()
    """The latest reports last."""

    @property
    def is_stopping(self) -> bool:
        """Whether its ranks were told to stop."""
        return self.stop is not None or self.preempted is not None

    @property
    def is_whole(self) -> bool:
        """Whether it was not told to stop, has not failed, and has left no node."""
        return not (self.is_stopping or self.failure is not None or any(status.gone for status in self.status))


class Upload(Value, frozen=True, kw_only=True):
    """A checkpoint that is being stored."""

    attempt: int
    step: int


class Evictor(Value, frozen=True, kw_only=True):
    """A job for which another one gave way, and why."""

    job_id: str
    reason: PreemptionReason


class Job(Value, frozen=True, kw_only=True):
    """A job that has not ended. `submitted` is the control index of its command, and so its place in the order."""

    job_id: str
    submitted: int
    spec: JobSpec
    attempts: int = 0
    attempt: Attempt | None = None
    cancelled: bool = False
    recovering: bool = False
    failures_in_row: int = 0
    """The job's own, since its last committed checkpoint that was newer than every one before."""
    excused_in_row: int = 0
    """Those that were not its own."""
    immediate_in_row: int = 0
    """Its own that came right after their start."""
    committed_step: int = -1
    """Of the newest checkpoint that the latest attempt has committed; -1 for none."""
    progressed: bool = False
    """Whether the latest attempt has committed a checkpoint of a later step than every one before it."""
    checkpoints: tuple[CheckpointRef, ...] = ()
    """Committed, newest first, as many as policy keeps."""
    uploads: tuple[CheckpointUploaded, ...] = ()
    """To be answered in the next round."""
    answer_forgotten: bool = False
    pending_since_us: int = 0
    """Core time since which it waits, or waited for its live attempt."""
    waited_us: int = 0
    """Of the waits that are over."""
    ran_us: int = 0
    """Of the attempts that are over, from binding to the end of the last rank."""
    ran_since_evicted_us: int = 0
    """The same, without the attempts up to the last one that gave way."""
    preemptions: int = 0
    moves: int = 0
    """Those of its preemptions that moved it."""
    evicted: PreemptionOrdered | None = None
    """Its last preemption."""
    evicted_by: tuple[Evictor, ...] = ()
    """The latest jobs for which it gave way; it does not evict them back for the same reason."""
    held: bool = False
    """By its user; it does not start."""
    barriers: tuple[str, ...] = ()
    """What else keeps it from being tried, sorted: see `gangline.scheduler.barriers`."""
    array_id: str = ""
    """The array that it belongs to, if any."""
    array_index: int | None = None
    replaced_ranks: tuple[int, ...] = ()
    """Those for whose slowness a node was replaced, ascending."""
    uploading: Upload | None = None
    """The newest checkpoint of its latest attempt that is not stored yet."""


class JobArray(Value, frozen=True, kw_only=True):
    """An array of jobs that have not all ended. Before `next_index` its bound holds back only jobs that are held."""

    array_id: str
    size: int
    left: int
    """Jobs that have not ended."""
    failed: int = 0
    """Those that ended without success."""
    next_index: int
    cancelled: bool = False
    answer_forgotten: bool = False


class StaleShare(Value, frozen=True, kw_only=True):
    """A share of an ended attempt on a node that was lost; its processes have not been reported gone."""

    job_id: str
    attempt: int
    share: Share


class Fault(Value, frozen=True, kw_only=True):
    """A fault that counts against a node. One job's launches count once: `job_id` is empty for other faults."""

    at_us: int
    reason: str
    job_id: str = ""


class Node(Value, frozen=True, kw_only=True):
    """A node; `free_milli[i]` is what is free of device `gpus[i]`, which is nothing if the device is broken."""

    node_id: str
    boot_id: str
    agent_id: str
    registered: tuple[bytes, ...] = ()
    """Event ids of its latest registrations: one that comes again, however late, is no news."""
    heard: tuple[bytes, ...] = ()
    """The same of what was said of its losses, recoveries and faults."""
    address: str
    pod: str
    gpu_type: str
    gpus: tuple[int, ...]
    free_milli: tuple[int, ...]
    cpu_milli: int
    cpu_free_milli: int
    memory_bytes: int
    memory_free_bytes: int
    held: tuple[str, ...] = ()
    """Jobs with a share here that is not gone, sorted."""
    next_port: int = 0
    cordoned: bool = False
    draining: bool = False
    cordon_reason: str = ""
    """Why it is cordoned or drained, if whoever did so said."""
    check_index: int | None = None
    """The command to examine it that waits for its agent's report, by control index."""
    lost: bool = False
    quarantined: bool = False
    quarantined_until_us: int | None = None
    """Core time; None for until an operator says so."""
    quarantine_reason: str = ""
    faults: tuple[Fault, ...] = ()
    """Since its last quarantine; the newest, oldest first."""
    sick: str = ""
    """Why the next round is to quarantine it, whatever its faults."""
    broken_gpus: tuple[int, ...] = ()
    """Indexes of devices that failed, ascending, until the node boots, or is found healthy or uncordoned."""
    stale: tuple[StaleShare, ...] = ()
    """Of ended attempts that may still run there, by (job, attempt, first rank)."""

    @property
    def is_blocked(self) -> bool:
        """Whether nothing new may start here. What is not known to be gone keeps the whole node closed."""
        return self.cordoned or self.draining or self.lost or self.quarantined or bool(self.stale)

    @property
    def whole_free(self) -> int:
        """How many of its devices are wholly free."""
        return self.free_milli.count(1000)


class Usage(Value, frozen=True, kw_only=True):
    """What a queue has used: GPUs times time, which decays, and what it occupies now."""

    decayed: int = 0
    """Thousandths of GPUs times microseconds, decayed to the last step."""
    undecayed: int = 0
    """The same, of what was occupied since the last step and before `since_us`."""
    occupied_milli: int = 0
    since_us: int = 0
    """Core time since which it occupies just this."""


class Answered(Value, frozen=True, kw_only=True):
    """That a command was answered: as which record, when (core time), and for which job."""

    control_index: int
    at_us: int
    job_id: str | None


class State(Value, frozen=True, kw_only=True):
    """Everything that decisions depend on, just after the control record `control_index`."""

    log_id: str = ""
    control_index: int = -1
    last_event_id: bytes = b""

    ticker: str = ""
    ticked_at_us: int = 0
    now_us: int = 0
    tick_index: int = -1
    before_us: int = 0
    """Core time of the tick before the last one that counts."""
    tick_event_id: bytes = b""
    """Of the last tick that counts; a round is due if it lies at `control_index`."""

    awaiting_round: bool = False
    """Whether inputs other than ticks came since the last round."""
    more: bool = False
    placement_due: bool = False
    """Whether anything came since the last round that could let a pending job start."""
    reopened: bool = False
    """Whether the round being applied let others onto nodes that were reserved, maybe after they had been tried."""

    policy: Policy | None = None
    policy_is_new: bool = False
    """Whether the round being applied activated it; it is effective from the next tick."""
    forgotten_at_us: int = 0
    answers_first: int = 0
    answers_next: int = 0
    """Answers are forgotten in the order in which they were given, numbered by these two."""

    commands: Map[int, Event] = Map()
    """Not yet answered, by control index."""
    failed_inputs: Map[int, str] = Map()
    """Not yet quarantined, by control index, with the reason."""
    touched: Map[str, bool] = Map()
    """Jobs of which something was reported since the last round."""
    answers: Map[bytes, Answered] = Map()
    answer_order: Map[int, bytes] = Map()
    jobs: Map[str, Job] = Map()
    pending: Map[str, bool] = Map()
    """Jobs without an attempt."""
    deadlines: Map[str, int] = Map()
    """Core time at which the live attempt of a job has run for its max_runtime."""
    deadlines_from_us: int | None = None
    """No deadline is earlier than this; None without any."""
    arrays: Map[str, JobArray] = Map()
    finished: Map[str, bool] = Map()
    """Arrays of which every job has ended; the next round ends them."""
    waits: Map[str, tuple[str, ...]] = Map()
    """By job or array that waits: what has to succeed first."""
    waited_for: Map[str, tuple[str, ...]] = Map()
    """By job or array: who waits for its success."""
    broken: Map[str, str] = Map()
    """Jobs and arrays that wait in vain, with the cause; the next round ends them."""
    pressed: Map[str, bool] = Map()
    """Stores that are nearly full."""
    timers: Map[str, int] = Map()
    """Core times at which something is due, by what and for whom: see `gangline.scheduler.timers`."""
    timers_from_us: int | None = None
    """No timer is earlier than this; None without any."""
    troubled: Map[str, bool] = Map()
    """Nodes of which a fault was reported since the last round."""
    ended: Map[str, Outcome] = Map()
    room: Map[str, RoomHeld] = Map()
    """What is held for claimants, by job id."""
    reserved: Map[str, NodesReserved] = Map()
    """By job id."""
    durations: Map[str, tuple[int, ...]] = Map()
    """How long the jobs of a group have run (see `durations`)."""
    usage: Map[str, Usage] = Map()
    """By queue; leaves only."""
    seen: Seen = Seen()
    """What jobs have asked for, and what holes are worth to the coming ones."""
    nodes: Map[str, Node] = Map()
    node_order: tuple[str, ...] = ()
    """All nodes in the natural order of their ids."""
    changed: Any = None
    """The links of what changed since the last round (see `journal`); no part of the canonical bytes."""
