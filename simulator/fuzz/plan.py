"""A case: everything that happens in a randomised world, but for what the core decides; as JSON it can be replayed.

A step names jobs by their number and nodes by their id, so that leaving out other steps does not change what it means.
Times are seconds from the beginning.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from gangline.events.policy import Policy, Queue
from gangline.events.types import Int32, JobSpec, Value

LASTS = 0
"""An attempt that lasts until its work is done."""
CANNOT_LAUNCH, CANNOT_EVER_LAUNCH, NODE_CANNOT_LAUNCH = 1000, 1001, 1002
"""Endings of attempts that never start; others are exit codes of their first rank."""


class Machine(Value, frozen=True, kw_only=True):
    """A node, and when its agent first starts."""

    node_id: str
    pod: str = "pod-0"
    gpu_type: str = "A"
    gpus: tuple[int, ...] = (0, 1)
    cpu_milli: int = 16_000
    memory_bytes: int = 16_000
    joins_s: int = 0


class Conduct(Value, frozen=True, kw_only=True):
    """How the attempts of a job go."""

    work_s: int = 10
    """What it needs in all; what was saved in a committed checkpoint need not be done again."""
    endings: tuple[int, ...] = ()
    """How its first attempts end, in order; the rest last."""
    ends_after_s: int = 1
    """How long attempts go that do not last."""
    checkpoint_s: int = 0
    """Between checkpoints; 0 for none."""
    upload_s: int = 0
    """How long storing one takes."""
    leaves_after_s: int = 0
    """How long its ranks need to exit when they are told to stop, if the grace allows."""


class Step(Value, frozen=True, kw_only=True, tag_field="kind"):
    """Something that happens, at a time."""

    at_s: int


class Submit(Step, frozen=True, kw_only=True, tag=True):
    """A user submits a job, or sends the same command again."""

    number: int
    spec: JobSpec
    conduct: Conduct = Conduct()


class OnJob(Step, frozen=True, kw_only=True, tag=True):
    """A user's command about a job. Of an array, `task` is meant, or the array itself where it is null."""

    number: int
    does: Literal["cancel", "hold", "release", "retry", "reprioritise"]
    priority: Int32 = 0
    task: int | None = None


class OnNode(Step, frozen=True, kw_only=True, tag=True):
    """An operator's command about a node."""

    node_id: str
    does: Literal["cordon", "uncordon", "drain", "check"]


class Activate(Step, frozen=True, kw_only=True, tag=True):
    """An operator activates a policy."""

    policy: Policy


class Queueing(Step, frozen=True, kw_only=True, tag=True):
    """An operator sets a queue, or removes one."""

    queue: Queue
    removed: bool = False


class Down(Step, frozen=True, kw_only=True, tag=True):
    """A node loses power and boots after so long, with other hardware if `after` is given."""

    node_id: str
    for_s: int
    after: Machine | None = None


class Cut(Step, frozen=True, kw_only=True, tag=True):
    """A node's agent cannot reach the log for so long; what runs there runs on."""

    node_id: str
    for_s: int


class AgentRestart(Step, frozen=True, kw_only=True, tag=True):
    """A node's agent crashes and starts again at once."""

    node_id: str


class Fault(Step, frozen=True, kw_only=True, tag=True):
    """Hardware of a node fails: a GPU (by its place in the node's list), or the node as a whole."""

    node_id: str
    gpu: int | None = None


class Report(Step, frozen=True, kw_only=True, tag=True):
    """An agent reports something about a job that runs: that it idles, or that a rank is slow."""

    number: int
    what: Literal["idle", "slow"]


class Pressure(Step, frozen=True, kw_only=True, tag=True):
    """The store fills up, or no longer is full."""

    pressed: bool


class Odd(Step, frozen=True, kw_only=True, tag=True):
    """A record that should change nothing: bytes that are no event, facts about what is not, another's ticks."""

    what: Literal["bytes", "truncated", "misplaced", "phantom_job", "phantom_node", "phantom_attempt", "other_ticker"]


class Crash(Step, frozen=True, kw_only=True, tag=True):
    """The scheduler dies and starts from the state after some round (`rounds_back` before the last) and the log."""

    rounds_back: int = 0


class Skew(Step, frozen=True, kw_only=True, tag=True):
    """The ticker's clock is wrong by so much for one tick."""

    by_s: int


AnyStep = (
    Submit
    | OnJob
    | OnNode
    | Activate
    | Queueing
    | Down
    | Cut
    | AgentRestart
    | Fault
    | Report
    | Pressure
    | Odd
    | Crash
    | Skew
)


class Noise(Value, frozen=True, kw_only=True):
    """What befalls messages, and how time passes."""

    seed: int = 0
    delayed_percent: int = 0
    delay_most_s: int = 5
    repeated_percent: int = 0
    repeat_most_s: int = 20
    lag_most_s: int = 0
    """How long an agent may take to read a round."""
    gap_most_s: int = 1
    """Between two ticks."""


class Plan(Value, frozen=True, kw_only=True):
    """A case. After `ends_s` what is broken is mended, and the world goes on until nothing more happens."""

    seed: int = 0
    policy: Policy = Policy()
    machines: tuple[Machine, ...] = ()
    steps: tuple[AnyStep, ...] = ()
    noise: Noise = Noise()
    ends_s: int = 60


def to_json(plan: Plan) -> bytes:
    """Return the case as JSON, without what is as by default."""
    return msgspec.json.format(msgspec.json.encode(_plain(plan)), indent=1)


def from_json(data: bytes) -> Plan:
    """Return the case in JSON. Raises msgspec.ValidationError for what is none."""
    return msgspec.json.decode(data, type=Plan)


def load(path: Path) -> Plan:
    """Return the case in a file."""
    return from_json(path.read_bytes())


def _plain(value: Any) -> Any:  # noqa: ANN401 - any part of a plan
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {
        field.name: _plain(getattr(value, field.name))
        for field in msgspec.structs.fields(value)
        if field.required or getattr(value, field.name) != field.default
    }
    tag = value.__struct_config__.tag
    return fields if tag is None else {"kind": tag, **fields}
