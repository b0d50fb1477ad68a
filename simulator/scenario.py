"""What a scenario says: nodes, the policy with its queues, jobs, what happens when, and what is to come of it.

How it is written is in `gangline.cli.scenario_file`. Times are microseconds from its beginning; what lies before is
negative. `path` says where in the file something stands, for messages.
"""

from typing import Literal, get_args

from gangline.events.policy import Policy, Queue
from gangline.events.types import JobSpec, PreemptionReason, Value
from gangline.schemas.errors import GanglineError
from gangline.simulator.work import SECOND_US, VirtualNode

Path = tuple[str | int, ...]
"""Keys, and places in lists, from the outermost table on."""

LONG_US = 10 * 366 * 24 * 3600 * SECOND_US
"""What no scenario lives to see: how long a job works that does not say."""


class ScenarioError(GanglineError):
    """A scenario that cannot be; `path` is what is wrong in it."""

    exit_code = 2

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class Seat(Value, frozen=True, kw_only=True):
    """GPUs of a node on which a job ran before the beginning; none named for the lowest that are free."""

    node_id: str
    gpus: tuple[int, ...] = ()


class PastAttempt(Value, frozen=True, kw_only=True):
    """An attempt bound before the beginning; it runs still, or gave way at a time."""

    seats: tuple[Seat, ...]
    since_us: int
    until_us: int | None = None
    reason: PreemptionReason = "service"
    """Why it gave way."""
    saved_us: tuple[int, ...] = ()
    """When a checkpoint of it was committed."""
    path: Path = ()


class ScenarioJob(Value, frozen=True, kw_only=True):
    """A job: what it asks for, when it is submitted, where it ran before the beginning, and how it goes on."""

    name: str
    spec: JobSpec
    submit_us: int
    after: tuple[str, ...] = ()
    """Names of the jobs that it waits for."""
    work_us: int = LONG_US
    save_us: int = 0
    save_interval_us: int | None = None
    restart_us: int = 0
    past: tuple[PastAttempt, ...] = ()
    """One after the other."""
    rejected: str | None = None
    """Text that its rejection is to contain; None if it is to be admitted."""
    path: Path = ()


class ScenarioNode(Value, frozen=True, kw_only=True):
    """A node, and how it is at the beginning."""

    node: VirtualNode
    cordoned: bool = False
    quarantined_until_us: int | None = None
    joins_us: int | None = None
    """When its agent starts for the first time; None for before the beginning."""
    cannot_launch: str = ""
    """Why its agent can launch nothing."""
    sick: str = ""
    """What its agent finds when it is told to examine the node."""
    path: Path = ()


Command = Literal[
    "cancel",
    "hold",
    "release",
    "retry",
    "reprioritise",
    "cordon",
    "uncordon",
    "drain",
    "check",
    "set_queue",
    "remove_queue",
    "activate_policy",
]
"""What users and operators can ask for."""

Fact = Literal[
    "exit",
    "checkpoint",
    "start_upload",
    "reject_checkpoint",
    "slow",
    "idle",
    "storage",
    "lose_node",
    "unhear_node",
    "hear_node",
    "silence_node",
    "break_node",
    "break_gpu",
]
"""What can befall the cluster."""

Deed = Literal[Command, Fact]
COMMANDS: tuple[Command, ...] = get_args(Command)


class Happening(Value, frozen=True, kw_only=True):
    """Something that happens at a time. Which of the other fields count, its deed says."""

    at_us: int
    deed: Deed
    job: str = ""
    node_id: str = ""
    gpu: int = 0
    rank: int | None = None
    """None for every rank."""
    code: int = 0
    priority: int = 0
    down_us: int | None = None
    """None for good."""
    idle_us: int = 0
    slowness_ppm: int = 0
    used_ppm: int = 0
    pressed: bool = False
    reason: str = ""
    queue: Queue | None = None
    queue_path: str = ""
    policy: Policy | None = None
    refused: str | None = None
    """Text that the refusal of this command is to contain; None if it is to be accepted."""
    path: Path = ()


class Expectation(Value, frozen=True, kw_only=True):
    """What is to be so after every round up to a time. None where nothing is said about something."""

    at_us: int
    runs: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    ended: tuple[tuple[str, str], ...] = ()
    """(job, outcome)."""
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(job, its shares as `node` or `node:gpus`), in rank order."""
    victims: tuple[str, ...] | None = None
    """All jobs told to give way so far, in any order, and no others."""
    reasons: tuple[tuple[str, str], ...] = ()
    """(victim, `reason` or `reason for claimant`), of its last preemption."""
    preemptions: tuple[tuple[str, int], ...] = ()
    attempts: tuple[tuple[str, int], ...] = ()
    why: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(job, texts that its explanation contains)."""
    causes: tuple[tuple[str, str], ...] = ()
    """(job, text that the cause of its last requeue or end contains)."""
    order: tuple[str, ...] = ()
    """Jobs, as they first started."""
    held: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(job, nodes on which GPUs are held for it)."""
    reserved: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(job, nodes reserved for it)."""
    quarantined: tuple[str, ...] | None = None
    """All nodes that are."""
    resumes: tuple[tuple[str, int], ...] = ()
    """(job, step of the checkpoint that its latest attempt starts from)."""
    warned: tuple[str, ...] | None = None
    """All jobs warned so far that their max_runtime ends."""
    path: Path = ()


class Scenario(Value, frozen=True, kw_only=True):
    """A whole scenario."""

    policy: Policy
    nodes: tuple[ScenarioNode, ...]
    jobs: tuple[ScenarioJob, ...]
    happenings: tuple[Happening, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    until_us: int
    """When it ends."""
