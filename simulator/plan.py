"""What a simulation is asked to run: a cluster, its workload, what befalls it, and how long."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gangline.events.policy import Policy, Queue
from gangline.simulator.faults import Fault
from gangline.simulator.work import Failures, VirtualNode, Work, no_failures


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The same for every policy that is compared."""

    title: str
    nodes: Sequence[VirtualNode]
    works: Sequence[Work]
    queues: tuple[Queue, ...]
    """The quota tree, for policies that bring none of their own."""
    failures: Failures = no_failures
    faults: Sequence[Fault] = ()
    until_us: int | None = None
    """When to stop; None runs until every job has ended."""
    attribution: str = ""
    """Of the trace; stands wherever a result is shown."""


class NamedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, as it is called in tables; `own_queues` if it brings its quota tree."""

    name: str
    policy: Policy
    own_queues: bool = False


Progress = Callable[[int], Any]
"""Is told the time of the simulation, in microseconds from its beginning."""
