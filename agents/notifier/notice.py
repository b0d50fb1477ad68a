"""What a notice is, what is remembered of a job for it, and how it is said."""

from typing import Literal

from gangline.events.types import Value

Kind = Literal["started", "preempted", "failed", "ended"]

NAMED_NODES = 3
"""Nodes that a text names; the list has all."""


class Notice(Value, frozen=True, kw_only=True):
    """One message, as receivers get it in JSON. `event_id` is the same each time it is sent; `text` is for people."""

    event_id: str
    kind: Kind
    log_id: str
    index: int
    """Of the record of `control` that this became known with: the later notice of a job has the higher one."""
    at_us: int
    job_id: str
    name: str
    queue: str
    user: str
    attempt: int
    outcome: str | None = None
    """Of a job that has ended: succeeded, failed or cancelled."""
    reason: str | None = None
    """Why it was preempted, in one word."""
    cause: str | None = None
    nodes: tuple[str, ...] = ()
    resume_step: int | None = None
    """The step of the checkpoint that an attempt starts from."""
    text: str

    @property
    def words(self) -> set[str]:
        """What a route may call it: a job that ends with a failure has `failed`, and `ended`."""
        return {self.kind, "failed"} if self.outcome == "failed" else {self.kind}


class Known(Value, frozen=True, kw_only=True):
    """What is remembered of a job until it ends."""

    name: str
    queue: str
    user: str
    notify: tuple[str, ...]
    admitted: bool = False
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    resume_step: int | None = None
    started: int = 0
    """The last attempt of which the start was told."""
    tasks_left: int | None = None
    """Of an array: its jobs that have not ended."""
    tasks_failed: int = 0


def gave_way(reason: str) -> str:
    """Return what a preemption means for the user; an elastic job goes on at once with another size."""
    if reason in {"grow", "shrink"}:
        return f"is stopped to {reason} and goes on with its next attempt"
    return "was preempted and waits for its next attempt"


def verb(outcome: str) -> str:
    """Return how a job has ended, after "has"."""
    return "been cancelled" if outcome == "cancelled" else outcome


def places(nodes: tuple[str, ...]) -> str:
    """Return nodes in words, a few of them by name."""
    if len(nodes) <= NAMED_NODES:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:NAMED_NODES])} and {len(nodes) - NAMED_NODES} more nodes"
