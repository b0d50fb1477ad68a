"""Agreement between the ranks: what one of them cannot do fails on all of them, instead of leaving the rest waiting."""

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch.distributed as dist

from gangline.schemas.errors import GanglineError, UsageError
from gangline.sdk.place import integer_variable

T = TypeVar("T")


class RankFailed(GanglineError):
    """A step that all ranks take together failed on at least one of them; the text names which and why."""


class _Outcome(Generic[T]):
    """What came of a rank's work, in a form that other ranks can be sent: exceptions may not be picklable."""

    value: T

    def __init__(self, rank: int, work: Callable[[], T]) -> None:
        self.failed: tuple[type[GanglineError], str] | None = None
        try:
            self.value = work()
        except Exception as error:  # noqa: BLE001 - it is raised on every rank
            if isinstance(error, GanglineError) and "__init__" not in vars(type(error)):
                self.failed = (type(error), f"rank {rank}: {error}")
            else:
                self.failed = (RankFailed, f"rank {rank}: {type(error).__name__}: {error}")


class Ranks:
    """The ranks of the default process group, or this process alone where there is none.

    Each method is a collective: all ranks call it, in the same order; and it raises on all if it failed on any: the
    lowest failing rank's error if that is one of gangline's, else `RankFailed`. Raises `UsageError` where the
    environment names several ranks but they cannot talk to each other.
    """

    def __init__(self) -> None:
        self.connected = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if self.connected else 0
        self.size = dist.get_world_size() if self.connected else 1
        expected = integer_variable(os.environ, "WORLD_SIZE", default=1, least=1)
        if not self.connected and expected > 1:
            raise UsageError(
                f"WORLD_SIZE is {expected}, but torch.distributed is not initialised: "
                "call torch.distributed.init_process_group() before save() or resume()",
            )

    def all(self, what: str, work: Callable[[], T]) -> list[T]:
        """Do `work` on each rank and give all results, in rank order, to all."""
        outcome = _Outcome(self.rank, work)
        outcomes: list[Any] = [outcome]
        if self.connected:
            outcomes = [None] * self.size
            dist.all_gather_object(outcomes, outcome)
        return _values(what, outcomes)

    def first(self, what: str, work: Callable[[], T]) -> T:
        """Do `work` on rank 0 only and give its result to all."""
        outcomes: list[Any] = [_Outcome(0, work) if self.rank == 0 else None]
        if self.connected:
            dist.broadcast_object_list(outcomes, src=0)
        values: list[T] = _values(what, outcomes)
        return values[0]


def _values(what: str, outcomes: list[_Outcome[T]]) -> list[T]:
    failures = [outcome.failed for outcome in outcomes if outcome.failed]
    if failures:
        raise failures[0][0](f"{what}: {'; '.join(text for _, text in failures)}")
    return [outcome.value for outcome in outcomes]
