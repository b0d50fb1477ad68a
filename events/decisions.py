"""Records of `decisions` (terms and rounds), the decisions inside a round, and the snapshot that agents start from."""

from gangline.events.types import CheckpointRef, Code, Decision, Event, Int32, Outcome, Share, StopReason, Value


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


class AttemptStopOrdered(Decision, frozen=True, kw_only=True):
    """Its ranks get SIGTERM, and SIGKILL after the grace."""

    job_id: str
    attempt: Int32
    reason: StopReason
    grace_us: int


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
    CommandRefused,
    CommandExpired,
    AnswerRepeated,
    GangBound,
    AttemptStopOrdered,
    AttemptEnded,
    JobRequeued,
    JobEnded,
    CheckpointCommitted,
    CheckpointRefused,
    InputQuarantined,
)
