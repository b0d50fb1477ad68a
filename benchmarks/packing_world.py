"""The packing experiment of FGD (USENIX ATC'23): tasks come one by one to a cluster that shares GPUs, and stay.

Trace times are ignored: the tasks are shuffled by the seed, and uniformly random clones follow until the next one would
take the demand over 130% of the cluster's GPUs. What does not fit is dropped, and counts as arrived.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from gangline.scheduler.fit import Choice
from gangline.scheduler.fleet import Fleet
from gangline.scheduler.state import Node
from gangline.simulator.openb import BadTrace, Machine, Task, machines, tasks

MARKS_PERCENT = (100, 130)
"""Arrived demand, of the cluster's GPUs, at which the allocation is read."""
MAX_ARRIVALS = 1_000_000
KINDS = ("cpu", "fraction", "one", "several")
"""Of tasks: without a GPU, with a part of one, with one, with more."""


class Rule(Protocol):
    """Chooses where tasks go; told of every arrival once, in order, by being asked."""

    def choose(self, task: Task) -> Choice | None:
        """Return where a task goes, or None if it fits nowhere; a choice is carried out before the next task."""
        ...


class Outcome(NamedTuple):
    """What came of one run."""

    allocated_percent: tuple[float, ...]
    """At each of MARKS_PERCENT."""
    accepted: dict[str, float]
    """The share of the tasks of each kind that found room; 1 for a kind that never came."""
    arrivals: int


class Trace(NamedTuple):
    """Tasks sorted by name, and the nodes that they come to."""

    tasks: tuple[Task, ...]
    machines: tuple[Machine, ...]

    @property
    def capacity_milli(self) -> int:
        """The thousandths of GPUs of all nodes."""
        return sum(machine.gpus for machine in self.machines) * 1000


def read(pods: Path, nodes: Path) -> Trace:
    """Read a trace. Raises NotFound, BadTrace; also for one that could never fill a GPU."""
    trace = Trace(tuple(sorted(tasks(pods), key=lambda task: task.name)), tuple(machines(nodes)))
    if not any(task.gpus for task in trace.tasks):
        raise BadTrace(
            f"{pods}: no task asks for a GPU (column num_gpu), so the demand never reaches the cluster's GPUs"
        )
    if not trace.capacity_milli:
        raise BadTrace(f"{nodes}: no node has a GPU (column gpu)")
    return trace


def arrivals(trace: Trace, seed: int) -> list[Task]:
    """Return the tasks in the order in which they arrive, clones included."""
    chance = random.Random(seed)  # noqa: S311 - an experiment, to be repeated
    waiting = list(trace.tasks)
    chance.shuffle(waiting)
    limit_milli = trace.capacity_milli * MARKS_PERCENT[-1] // 100
    arriving: list[Task] = []
    milli = 0
    while len(arriving) < MAX_ARRIVALS:
        task = waiting[len(arriving)] if len(arriving) < len(waiting) else chance.choice(trace.tasks)
        milli += task.milli
        if milli > limit_milli:
            return arriving
        arriving.append(task)
    raise BadTrace(f"{MAX_ARRIVALS:,} tasks do not fill the cluster: its tasks are too small for its nodes")


def fleet_of(trace: Trace, seed: int) -> Fleet:
    """Return the empty cluster; ties go to the lowest name, so the seed names the nodes."""
    order = random.Random(seed).sample(range(len(trace.machines)), len(trace.machines))  # noqa: S311 - as above
    return Fleet([_node(f"node-{name}", trace.machines[place]) for name, place in enumerate(order)])


def _node(node_id: str, machine: Machine) -> Node:
    return Node(
        node_id=node_id,
        boot_id="",
        agent_id="",
        address=node_id,
        pod="",
        gpu_type=machine.gpu_type,
        gpus=tuple(range(machine.gpus)),
        free_milli=(1000,) * machine.gpus,
        cpu_milli=machine.cpu_milli,
        cpu_free_milli=machine.cpu_milli,
        memory_bytes=machine.memory_bytes,
        memory_free_bytes=machine.memory_bytes,
    )


def kind_of(task: Task) -> str:
    """Return which of KINDS a task is."""
    if task.gpus == 0:
        return "cpu"
    return "several" if task.gpus > 1 else "one" if task.gpu_milli == 1000 else "fraction"


def run(rule: Rule, fleet: Fleet, arriving: Sequence[Task], capacity_milli: int) -> Outcome:
    """Let the tasks arrive; raises AssertionError if a rule takes what is not free."""
    demand_milli = allocated_milli = 0
    marks = [mark * capacity_milli // 100 for mark in MARKS_PERCENT]
    read_percent: list[float] = []
    came = dict.fromkeys(KINDS, 0)
    placed = dict.fromkeys(KINDS, 0)
    for task in arriving:
        demand_milli += task.milli
        came[kind_of(task)] += 1
        choice = rule.choose(task)
        if choice is not None:
            _take(fleet, task, choice)
            allocated_milli += task.milli
            placed[kind_of(task)] += 1
        if len(read_percent) < len(marks) - 1 and demand_milli >= marks[len(read_percent)]:
            read_percent.append(100 * allocated_milli / capacity_milli)
    # The next task would take the demand over the last mark: this is as near as it comes.
    read_percent.append(100 * allocated_milli / capacity_milli)
    accepted = {kind: placed[kind] / came[kind] if came[kind] else 1.0 for kind in KINDS}
    return Outcome(tuple(read_percent), accepted, len(arriving))


def _take(fleet: Fleet, task: Task, choice: Choice) -> None:
    assert len(set(choice.columns)) == task.gpus, f"{task.name} asks for {task.gpus} GPUs, and was given {choice}"
    assert not task.gpu_types or fleet.types[fleet.type_index[choice.row]] in task.gpu_types, "a type not asked for"
    fleet.take(choice.row, choice.columns, task.gpu_milli, task.cpu_milli, task.memory_bytes)
    assert (fleet.free[choice.row] >= 0).all(), f"a device was given to more than it holds, {task.name} last"
    assert fleet.cpu_free[choice.row] >= 0, f"more CPU was given than there is, to {task.name} last"
    assert fleet.memory_free[choice.row] >= 0, f"more memory was given than there is, to {task.name} last"
