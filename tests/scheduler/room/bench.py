"""Small clusters with jobs on them, as the searches for victims see them, and what brute force finds there."""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gangline.scheduler.fleet import Fleet
from gangline.scheduler.room.freeing import costs_of
from gangline.scheduler.room.search import Field
from gangline.scheduler.state import Node
from gangline.scheduler.views.running import SEVERAL, Runs, Span

CPU_MILLI = 16_000
MEMORY_BYTES = 64


class Run(NamedTuple):
    """A running attempt: devices by (node, column), thousandths taken of each, lost work in GPU-seconds."""

    devices: tuple[tuple[int, int], ...]
    milli: int = 1000
    lost: int = 0
    cpu_milli: int = 0
    eligible: bool = True

    @property
    def nodes(self) -> list[int]:
        return sorted({node for node, _ in self.devices})


class Bench:
    """A cluster of nodes with so many devices each, and the attempts on it."""

    def __init__(self, sizes: Sequence[int], runs: Sequence[Run]) -> None:
        self.sizes = tuple(sizes)
        self.list = tuple(runs)
        self.fleet = self.fleet_without(())
        self.runs = self._runs()
        eligible = np.array([run.eligible for run in runs], np.bool_)
        several = self.runs.node == SEVERAL
        cost = costs_of(self.runs)
        nodes = np.ones(len(sizes), np.bool_)
        self.field = Field(self.fleet, self.runs, cost, eligible & ~several, eligible & several, nodes)

    def spans(self) -> tuple[Span, ...]:
        return tuple(
            Span(
                row,
                np.array(run.nodes, np.int64),
                np.array([sum(at == node for at, _ in run.devices) for node in run.nodes], np.int64),
            )
            for row, run in enumerate(self.list)
            if run.eligible and len(run.nodes) > 1
        )

    def fleet_without(self, victims: Sequence[int]) -> Fleet:
        """Return the fleet as it is once the victims are gone."""
        free = [[1000] * size for size in self.sizes]
        cpu = [CPU_MILLI] * len(self.sizes)
        for row, run in enumerate(self.list):
            if row not in victims:
                for node, column in run.devices:
                    free[node][column] -= run.milli
                    cpu[node] -= run.cpu_milli
        return Fleet(
            [
                Node(
                    node_id=f"node-{number}",
                    boot_id="",
                    agent_id="",
                    address="",
                    pod="pod-0",
                    gpu_type="H100",
                    gpus=tuple(range(size)),
                    free_milli=tuple(free[number]),
                    cpu_milli=CPU_MILLI,
                    cpu_free_milli=cpu[number],
                    memory_bytes=MEMORY_BYTES,
                    memory_free_bytes=MEMORY_BYTES,
                )
                for number, size in enumerate(self.sizes)
            ]
        )

    def cost(self, victims: Sequence[int]) -> int:
        return sum(int(self.field.cost[row]) for row in victims)

    def eligible_sets(self) -> Iterator[tuple[int, ...]]:
        rows = [row for row, run in enumerate(self.list) if run.eligible]
        for count in range(len(rows) + 1):
            yield from itertools.combinations(rows, count)

    def _runs(self) -> Runs:
        count = len(self.list)
        single = [len(run.nodes) == 1 for run in self.list]
        whole = [run.milli == 1000 for run in self.list]
        zeros = np.zeros(count, np.int64)

        def ints(values: Sequence[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
            return np.array(values, np.int64)

        return Runs(
            job_ids=tuple(f"job-{row}" for row in range(count)),
            queues=("q",),
            queue=zeros,
            priority=zeros,
            node=ints([run.nodes[0] if one else SEVERAL for run, one in zip(self.list, single, strict=True)]),
            column=ints([-1 if one else run.devices[0][1] for run, one in zip(self.list, whole, strict=True)]),
            type_index=zeros,
            gpus=ints([len(run.devices) if one else 0 for run, one in zip(self.list, whole, strict=True)]),
            milli=ints([len(run.devices) * run.milli for run in self.list]),
            cpu_milli=ints([len(run.devices) * run.cpu_milli for run in self.list]),
            memory_bytes=zeros,
            gang=np.array([not one for one in single], np.bool_),
            preemptible=np.ones(count, np.bool_),
            run_us=zeros,
            since_evicted_us=zeros,
            level=zeros,
            lost=ints([run.lost for run in self.list]),
            waited_us=zeros,
            preemptions=zeros,
            moves=zeros,
            surplus=zeros,
            growth=zeros,
        )


def random_bench(seed: int, *, gangs: bool = False, most_runs: int = 9) -> Bench:
    """Return a cluster of at most 16 devices, partly used."""
    draw = random.Random(seed)
    sizes = [draw.choice((2, 4)) for _ in range(draw.randint(1, 4))]
    if gangs:
        sizes = [draw.choice((2, 4))] * draw.randint(2, 4)
    free = {(node, column): 1000 for node, size in enumerate(sizes) for column in range(size)}
    runs: list[Run] = []
    for _ in range(draw.randint(1, most_runs)):
        whole = [device for device in sorted(free) if free[device] == 1000]
        lost, eligible = draw.choice((0, 1, 5, 20, 300)), draw.random() < 0.75
        cpu = draw.choice((0, 1_000, 4_000))
        kind = draw.random()
        if kind < 0.25:
            milli = draw.choice((200, 300, 500))
            fits = [device for device in sorted(free) if free[device] >= milli]
            if fits:
                devices, taken = (draw.choice(fits),), milli
                runs.append(Run(devices, milli, lost, cpu, eligible))
                free[devices[0]] -= taken
        elif gangs and kind < 0.5 and len({node for node, _ in whole}) > 1:
            taken_devices = tuple(sorted(draw.sample(whole, draw.randint(2, len(whole)))))
            if len({node for node, _ in taken_devices}) > 1:
                runs.append(Run(taken_devices, 1000, lost, cpu, eligible))
                free.update(dict.fromkeys(taken_devices, 0))
        else:
            node = draw.randrange(len(sizes))
            there = [device for device in whole if device[0] == node]
            if there:
                taken_devices = tuple(there[: draw.randint(1, len(there))])
                runs.append(Run(taken_devices, 1000, lost, cpu, eligible))
                free.update(dict.fromkeys(taken_devices, 0))
    return Bench(sizes, runs)
