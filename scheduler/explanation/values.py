"""What is said of a job, as data: for people its `text`, for programs the fields."""

from gangline.events.types import Value


class NodeCount(Value, frozen=True, kw_only=True):
    """How many nodes the same thing keeps a job from."""

    kind: str
    nodes: int
    text: str
    """As in `3 cordoned` or `2 held for job-x`."""


class NodeReason(Value, frozen=True, kw_only=True):
    """One thing that keeps a job from a node."""

    kind: str
    text: str


class Change(Value, frozen=True, kw_only=True):
    """The nearest thing that would let a job start."""

    kind: str
    """`start`, `evict`, `end`, `uncordon`, `quota`, `user` or `wait`."""
    text: str
    in_us: int | None = None
    """Expected core time until then; None where it depends on people."""
    subjects: tuple[str, ...] = ()
    """The jobs or nodes that it is about."""


class Explanation(Value, frozen=True, kw_only=True):
    """Why a job stands as it does, just after a round."""

    job_id: str
    standing: str
    """`pending`, `running`, `stopping`, `ended` or `unknown`."""
    rule: str
    """What holds it: `held`, `after`, `array`, `storage`, `upload`, `claim`, `quota`, `order`, `nodes`, `ports`."""
    text: str
    nodes: tuple[NodeCount, ...] = ()
    before: tuple[str, ...] = ()
    """The first pending jobs whose turn is before its own."""
    before_count: int = 0
    change: Change | None = None
    notes: tuple[str, ...] = ()
    """What else is known: how its queue stands, for whom it last gave way."""
