"""Reads the tasks and the nodes of an Alibaba GPU cluster (openb: alibaba/clusterdata, cluster-trace-gpu-v2023).

The traces are CC BY 4.0: whoever shows a result of them names the source. FGD (USENIX ATC'23) describes them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from gangline.events.types import MIB, WHOLE_MILLI
from gangline.simulator.csv_rows import BadTrace, Row, rows

ATTRIBUTION = "openb trace: alibaba/clusterdata, cluster-trace-gpu-v2023 (CC BY 4.0); FGD (USENIX ATC'23)"
TASK_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
MAX_GPUS = 1_024
"""Of one node, and so of a task, which takes one node."""
MAX_CPU_MILLI = 10_000_000
MAX_MEMORY_MIB = 1 << 30
MAX_TIME_S = 10 * 366 * 24 * 3600


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task on one node: CPU and memory in all, and `gpu_milli` thousandths of each of `gpus` devices."""

    name: str
    cpu_milli: int
    memory_bytes: int
    gpus: int
    gpu_milli: int
    gpu_types: tuple[str, ...]
    """Sorted; empty for any."""
    created_s: int | None = None
    deleted_s: int | None = None

    @property
    def milli(self) -> int:
        """The thousandths of GPUs that it asks for in all."""
        return self.gpus * self.gpu_milli


class Machine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node as the trace has it."""

    name: str
    cpu_milli: int
    memory_bytes: int
    gpus: int
    gpu_type: str


def tasks(path: Path) -> Iterator[Task]:
    """Yield the tasks of a pod list, in its order. Raises NotFound, BadTrace; names appear once."""
    for _, task in _tasks(path):
        yield task


def timed_tasks(path: Path, nodes: Sequence[Machine]) -> Iterator[Task]:
    """Yield the tasks of a pod list that say when they came and went, in its order.

    Raises NotFound, BadTrace; also for such a task that none of the nodes could take though it were empty.
    """
    fitting: set[tuple[int, int, int, tuple[str, ...]]] = set()
    for row, task in _tasks(path):
        if task.created_s is None or task.deleted_s is None or task.deleted_s <= task.created_s:
            continue
        shape = (task.cpu_milli, task.memory_bytes, task.gpus, task.gpu_types)
        if shape not in fitting:
            _check_fits(row, task, nodes)
            fitting.add(shape)
        yield task


def _tasks(path: Path) -> Iterator[tuple[Row, Task]]:
    lines: dict[str, int] = {}
    with closing(rows(path, TASK_COLUMNS)) as found:
        for row in found:
            task = _task(row)
            line = lines.setdefault(task.name, row.number)
            if line != row.number:
                raise row.bad("name", f"the task of row {line} has that name")
            yield row, task


def _check_fits(row: Row, task: Task, nodes: Sequence[Machine]) -> None:
    """Raise BadTrace with the first column that leaves no node."""
    asks: tuple[tuple[str, str, int, Callable[[Machine], int]], ...] = (
        ("num_gpu", "GPUs", task.gpus, lambda node: node.gpus),
        ("cpu_milli", "thousandths of a CPU", task.cpu_milli, lambda node: node.cpu_milli),
        ("memory_mib", "MiB", task.memory_bytes // MIB, lambda node: node.memory_bytes // MIB),
    )
    left = nodes
    told: list[str] = []
    if task.gpu_types:
        left = [node for node in nodes if node.gpus and node.gpu_type in task.gpu_types]
        if not left:
            there = sorted({node.gpu_type for node in nodes if node.gpus})
            raise row.bad("gpu_spec", f"the nodes have {', '.join(there) or 'no GPUs'}")
        told.append(" or ".join(task.gpu_types))
    for column, unit, asked, has in asks:
        most = max((has(node) for node in left), default=0)
        left = [node for node in left if has(node) >= asked]
        if not left:
            having = f" with {', '.join(told)}" if told else ""
            raise row.bad(column, f"no node{having} has more than {most:,}")
        if asked:
            told.append(f"{asked:,} {unit}")


def machines(path: Path) -> Iterator[Machine]:
    """Yield the nodes of a node list, in its order. Raises NotFound, BadTrace; names appear once."""
    lines: dict[str, int] = {}
    with closing(rows(path, NODE_COLUMNS)) as found:
        for row in found:
            name = row.name("sn")
            line = lines.setdefault(name, row.number)
            if line != row.number:
                raise row.bad("sn", f"the node of row {line} has that name")
            yield _machine(name, row)


def _machine(name: str, row: Row) -> Machine:
    gpus = row.integer("gpu", 0, MAX_GPUS)
    return Machine(
        name=name,
        cpu_milli=row.integer("cpu_milli", 0, MAX_CPU_MILLI),
        memory_bytes=row.integer("memory_mib", 0, MAX_MEMORY_MIB) * MIB,
        gpus=gpus,
        gpu_type=row.name("model") if gpus else row.text("model"),
    )


def _task(row: Row) -> Task:
    gpus = row.integer("num_gpu", 0, MAX_GPUS)
    # Lists write 0 or nothing as the share of a task without GPUs.
    milli = row.integer("gpu_milli", 1, WHOLE_MILLI) if gpus else 0
    if gpus > 1 and milli != WHOLE_MILLI:
        raise row.bad("gpu_milli", f"a task of {gpus} GPUs takes whole ones, {WHOLE_MILLI} of each")
    types = sorted({name.strip() for name in row.text("gpu_spec").split("|")} - {""})
    created_s, deleted_s = _time_s(row, "creation_time"), _time_s(row, "deletion_time")
    if created_s is not None and deleted_s is not None and deleted_s < created_s:
        raise row.bad("deletion_time", f"it was created at {created_s}")
    return Task(
        name=row.name("name"),
        cpu_milli=row.integer("cpu_milli", 0, MAX_CPU_MILLI),
        memory_bytes=row.integer("memory_mib", 0, MAX_MEMORY_MIB) * MIB,
        gpus=gpus,
        gpu_milli=milli,
        gpu_types=tuple(types) if gpus else (),
        created_s=created_s,
        deleted_s=deleted_s,
    )


def _time_s(row: Row, column: str) -> int | None:
    return row.integer(column, 0, MAX_TIME_S) if row.has(column) else None


__all__ = ["BadTrace", "Machine", "Task", "machines", "tasks", "timed_tasks"]
