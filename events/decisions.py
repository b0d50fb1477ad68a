"""Records of `decisions` (terms and rounds), the decisions inside a round, and the snapshot that agents start from."""

from gangline.events.types import (
    CheckpointRef,
    Code,
    Decision,
    Event,
    Int32,
    Outcome,
    PreemptionReason,
    RoleLaunch,
    Share,
    StopReason,
    Value,
)


class TermOpened(Event, frozen=True, kw_only=True):
    """Records of lower terms are void from here on; see `gangline.events.terms` for when it is void itself."""

    term: Int32
    previous: Int32
    control_index: int
    code_digest: str
    wheel: str | None
    boundary_sha256: str | None
    state_sha256: str


class RoundDecided(Event, frozen=True, kw_only=True):
    """All decisions of one round, each in single-object encoding; `more` when its size ended it."""

    tick_index: int
    tick_event_id: bytes
    term: Int32
    more: bool
    decisions: tuple[bytes, ...]


class Answer(Decision, frozen=True, kw_only=True):
    """A decision that answers a command."""

    command_id: bytes
    control_index: int


class JobAdmitted(Answer, frozen=True, kw_only=True):
    """The job waits for its gang."""

    job_id: str


class JobRejected(Answer, frozen=True, kw_only=True):
    """The job will never run as asked: `key` of its spec has `value`, `limit` is what could be."""

    key: str
    value: str
    limit: str
    message: str


class CancelAccepted(Answer, frozen=True, kw_only=True):
    """The job has ended, or its ranks are told to stop."""

    job_id: str


class PolicyActivated(Answer, frozen=True, kw_only=True):
    """Effective from the next tick."""


class PolicyRefused(Answer, frozen=True, kw_only=True):
    """The policy does not hold together."""

    message: str


class CommandAccepted(Answer, frozen=True, kw_only=True):
    """What an operator's or user's command asks for holds from here on."""


class CommandRefused(Answer, frozen=True, kw_only=True):
    """What was asked cannot be done."""

    message: str


class CommandExpired(Answer, frozen=True, kw_only=True):
    """Too old to know whether it was answered before."""


class AnswerRepeated(Answer, frozen=True, kw_only=True):
    """The command was answered before, as record `first_control_index`; that answer stands."""

    first_control_index: int


class GangBound(Decision, frozen=True, kw_only=True):
    """An attempt has its placement; all that agents need to launch it."""

    job_id: str
    attempt: Int32
    shares: tuple[Share, ...]
    world_size: Int32
    master_address: str
    master_port: Int32
    resume: tuple[CheckpointRef, ...]
    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    grace_us: int
    code: Code | None
    checkpoints: str | None
    roles: tuple[RoleLaunch, ...] = ()
    array_index: Int32 | None = None
    idle_timeout_us: int | None = None
    """For an interactive job."""


class AttemptStopOrdered(Decision, frozen=True, kw_only=True):
    """Its ranks get SIGTERM, and SIGKILL after the grace."""

    job_id: str
    attempt: Int32
    reason: StopReason
    grace_us: int


class PreemptionOrdered(Decision, frozen=True, kw_only=True):
    """Its ranks get SIGTERM, save and exit, and SIGKILL after the grace; then the job is requeued."""

    job_id: str
    attempt: Int32
    reason: PreemptionReason
    claimant: str | None
    """The job for which it gives way, if it is one."""
    grace_us: int


class AttemptPreempted(Decision, frozen=True, kw_only=True):
    """No process of the attempt is left, and that is no failure of its job."""

    job_id: str
    attempt: Int32
    reason: PreemptionReason
    cause: str


class RoomHeld(Decision, frozen=True, kw_only=True):
    """A claimant will be bound to just these shares, as soon as they are free; nobody else is."""

    job_id: str
    shares: tuple[Share, ...]
    reason: PreemptionReason
    until_us: int | None
    """Core time at which the hold lapses; null while victims have yet to go."""


class RoomReleased(Decision, frozen=True, kw_only=True):
    """The hold is over without a binding to it."""

    job_id: str
    cause: str


class NodesReserved(Decision, frozen=True, kw_only=True):
    """A gang waits for these nodes; others start there only if they end before."""

    job_id: str
    node_ids: tuple[str, ...]
    since_us: int
    """When its first reservation was made."""
    free_at_us: int
    """When they are expected to be free."""


class ReservationDropped(Decision, frozen=True, kw_only=True):
    """The gang has no nodes reserved any more."""

    job_id: str
    cause: str


class NodeQuarantined(Decision, frozen=True, kw_only=True):
    """Nothing new starts on this node until then, or until an operator says so (null)."""

    node_id: str
    until_us: int | None
    reason: str


class NodeReleased(Decision, frozen=True, kw_only=True):
    """The node's quarantine is over."""

    node_id: str


class NodeCheckOrdered(Decision, frozen=True, kw_only=True):
    """The node's agent examines it and reports NodeChecked."""

    node_id: str
    check_index: int


class RuntimeWarned(Decision, frozen=True, kw_only=True):
    """The attempt will be stopped at that core time, its max_runtime being over."""

    job_id: str
    attempt: Int32
    ends_at_us: int
    left_us: int
    """Until then, from the round on."""


class AttemptEnded(Decision, frozen=True, kw_only=True):
    """No process of the attempt is left."""

    job_id: str
    attempt: Int32
    outcome: Outcome
    cause: str


class JobRequeued(Decision, frozen=True, kw_only=True):
    """The job waits for its next attempt."""

    job_id: str
    attempt: Int32
    failures_in_row: Int32
    cause: str
    excused_in_row: Int32 = 0
    """Failures in a row that were not the job's own: lost nodes, broken GPUs, launches that a node could not do."""
    immediate_in_row: Int32 = 0
    """The job's own failures in a row that came right after their start."""


class JobEnded(Decision, frozen=True, kw_only=True):
    """Nothing of the job will run again."""

    job_id: str
    outcome: Outcome
    cause: str
    attempts: Int32


class CheckpointCommitted(Decision, frozen=True, kw_only=True):
    """The checkpoint exists from here on."""

    job_id: str
    attempt: Int32
    checkpoint: CheckpointRef


class CheckpointRefused(Decision, frozen=True, kw_only=True):
    """The checkpoint will never be restored."""

    job_id: str
    attempt: Int32
    checkpoint: CheckpointRef
    reason: str


class TypePrice(Value, frozen=True, kw_only=True):
    """What a device of a type costs besides what is lost of its worth, in thousandths of a device."""

    gpu_type: str
    price: int


class WorthLearnt(Decision, frozen=True, kw_only=True):
    """What free shares of devices are worth to the jobs to come, learnt from those that have arrived."""

    arrivals: int
    """After how many jobs."""
    of_free: tuple[Int32, ...]
    """By the free share in hundredths (101 values), in thousandths of a device that is wholly free."""
    prices: tuple[TypePrice, ...]
    """Sorted by type; those of none cost nothing."""
    cpu_milli_per_gpu: int
    """A free device with less CPU free beside it is worth less; 0 for no such bound."""
    memory_bytes_per_gpu: int
    basis: tuple[tuple[Int32, ...], ...]
    """Patterns of shares, in hundredths, into which devices are best cut: where the next computation begins."""


class InputQuarantined(Decision, frozen=True, kw_only=True):
    """This record of `control` is skipped, now and in every replay."""

    control_index: int
    reason: str


class LiveAttempt(Value, frozen=True, kw_only=True):
    """A live attempt: its encoded GangBound, and its encoded AttemptStopOrdered if there was one."""

    bound: bytes
    stop: bytes | None


class BindingsSnapshot(Event, frozen=True, kw_only=True):
    """What agents start from: the live attempts just after the round of `tick_index`, by job id."""

    log_id: str
    term: Int32
    tick_index: int
    decisions_index: int
    decisions_offset: int
    live: tuple[LiveAttempt, ...]


DECISIONS: tuple[type[Decision], ...] = (
    JobAdmitted,
    JobRejected,
    CancelAccepted,
    PolicyActivated,
    PolicyRefused,
    CommandAccepted,
    CommandRefused,
    CommandExpired,
    AnswerRepeated,
    GangBound,
    AttemptStopOrdered,
    PreemptionOrdered,
    AttemptPreempted,
    RoomHeld,
    RoomReleased,
    NodesReserved,
    ReservationDropped,
    NodeQuarantined,
    NodeReleased,
    NodeCheckOrdered,
    RuntimeWarned,
    AttemptEnded,
    JobRequeued,
    JobEnded,
    CheckpointCommitted,
    CheckpointRefused,
    WorthLearnt,
    InputQuarantined,
)
