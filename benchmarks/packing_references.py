"""What packing is held against: random, best fit, and FGD (USENIX ATC'23), which knows the shapes beforehand."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.fit import Choice
from gangline.scheduler.fleet import Flags, Fleet, Ints
from gangline.simulator.openb import Task

COVERED = 0.95
"""FGD knows the most frequent shapes, until they make up this share of the tasks."""
CPU_SCALE_MILLI = 128_000
GPU_SCALE_MILLI = 8_000


def fitting(fleet: Fleet, task: Task) -> Flags:
    """Return which nodes hold a task."""
    found = (fleet.cpu_free >= task.cpu_milli) & (fleet.memory_free >= task.memory_bytes)
    if task.gpus:
        found &= (fleet.free >= task.gpu_milli).sum(axis=1) >= task.gpus
    types = fleet.types_mask(task.gpu_types)
    return found if types is None else found & types


def fitting_columns(fleet: Fleet, row: int, task: Task) -> list[int]:
    """Return the devices of a node that hold a task's share."""
    columns: list[int] = np.flatnonzero(fleet.free[row] >= task.gpu_milli).tolist()
    return columns


class Random:
    """Uniform among the nodes that fit, then among the devices that fit."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._chance = random.Random(seed)  # noqa: S311 - an experiment, to be repeated

    def choose(self, task: Task) -> Choice | None:
        """Return where a task goes."""
        rows = np.flatnonzero(fitting(self._fleet, task)).tolist()
        if not rows:
            return None
        row = self._chance.choice(rows)
        columns = fitting_columns(self._fleet, row, task) if task.gpus else []
        return Choice(row, tuple(self._chance.sample(columns, task.gpus)))


class BestFit:
    """The node with the least CPU and GPU left, half and half; there the fullest device that fits."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def choose(self, task: Task) -> Choice | None:
        """Return where a task goes."""
        fleet = self._fleet
        rows = np.flatnonzero(fitting(fleet, task))
        if not rows.size:
            return None
        cpu_left = (fleet.cpu_free[rows] - task.cpu_milli) / CPU_SCALE_MILLI
        milli_left = (fleet.free[rows].sum(axis=1) - task.milli) / GPU_SCALE_MILLI
        score = (100 * (1 - (cpu_left * 0.5 + milli_left * 0.5))).astype(np.int64)
        row = int(rows[score.argmax()])
        columns = fitting_columns(fleet, row, task) if task.gpus else []
        columns.sort(key=lambda column: (fleet.free[row, column], column))
        return Choice(row, tuple(columns[: task.gpus]))


Shape = tuple[int, int, int, tuple[str, ...]]


class _Scores(NamedTuple):
    """What a shape of task would score on each node, and on which device; of the first `seen` changes."""

    score: Ints
    column: Ints
    seen: list[int]


class Fgd:
    """Fragmentation gradient descent: the placement after which the known shapes find least fragments."""

    def __init__(self, fleet: Fleet, tasks: Sequence[Task]) -> None:
        self._fleet = fleet
        shapes = _frequent(tasks)
        weights = np.array([weight for _, weight in shapes], np.float64)
        self._weights = weights / weights.sum()
        self._cpu = np.array([shape[0] for shape, _ in shapes], np.int64)
        self._milli = np.array([shape[1] for shape, _ in shapes], np.int64)
        self._gpus = np.array([shape[2] for shape, _ in shapes], np.int64)
        excluded = [[bool(types) and name not in types for name in fleet.types] for (*_, types), _ in shapes]
        self._excluded = np.array(excluded, np.bool_).T
        """By type of node and shape."""
        self._scores: dict[tuple[int, int, int], _Scores] = {}
        self._changed: list[int] = []

    def choose(self, task: Task) -> Choice | None:
        """Return where a task goes, which is supposed to be carried out at once."""
        rows = np.flatnonzero(fitting(self._fleet, task))
        if not rows.size:
            return None
        scores = self._up_to_date(task)
        row = int(rows[scores.score[rows].argmax()])
        self._changed.append(row)
        if task.gpus == 0:
            return Choice(row, ())
        if task.gpus == 1 and task.gpu_milli < WHOLE_MILLI:
            return Choice(row, (int(scores.column[row]),))
        return Choice(row, tuple(fitting_columns(self._fleet, row, task)[: task.gpus]))

    def fragments(self, free: NDArray[np.int32], cpu_free: Ints, type_index: Ints) -> NDArray[np.float64]:
        """Return the expected fragment, in thousandths of a GPU, of nodes with `free[..., devices]`."""
        enough = free[..., None, :] >= self._milli[:, None]
        total = free.sum(axis=-1)[..., None]
        useless = (self._gpus == 0) | self._excluded[type_index] | (cpu_free[..., None] < self._cpu)
        useless |= enough.sum(axis=-1) < self._gpus
        too_small = (free[..., None, :] * ~enough).sum(axis=-1)
        return np.asarray(np.where(useless, total, too_small) @ self._weights)

    def _up_to_date(self, task: Task) -> _Scores:
        """Return the scores of the task's shape, those of nodes that changed computed again."""
        key = (task.cpu_milli, task.gpu_milli, task.gpus)
        scores = self._scores.get(key)
        if scores is None:
            size = self._fleet.size
            scores = self._scores[key] = _Scores(np.zeros(size, np.int64), np.zeros(size, np.int64), [0])
            rows = np.arange(size)
        else:
            rows = np.unique(np.array(self._changed[scores.seen[0] :], np.int64))
        scores.seen[0] = len(self._changed)
        if rows.size:
            scores.score[rows], scores.column[rows] = self._scored(rows, task)
        return scores

    def _scored(self, rows: Ints, task: Task) -> tuple[Ints, Ints]:
        fleet = self._fleet
        free, cpu_left, types = fleet.free[rows], fleet.cpu_free[rows] - task.cpu_milli, fleet.type_index[rows]
        before = self.fragments(free, fleet.cpu_free[rows], types)
        if task.gpus == 1 and task.gpu_milli < WHOLE_MILLI:
            after = free[:, None, :] - np.eye(fleet.widest, dtype=np.int32) * task.gpu_milli
            wide = (len(rows), fleet.widest)
            left = self.fragments(
                after, np.broadcast_to(cpu_left[:, None], wide), np.broadcast_to(types[:, None], wide)
            )
            score = _score(before[:, None] - left)
            score[free < task.gpu_milli] = -1
            column = score.argmax(axis=1)
            return score[np.arange(len(rows)), column], column
        taken = free.copy()
        if task.gpus:
            whole = (free == WHOLE_MILLI) & ((free == WHOLE_MILLI).cumsum(axis=1) <= task.gpus)
            taken[whole] = 0
        return _score(before - self.fragments(taken, cpu_left, types)), np.zeros(len(rows), np.int64)


def _score(gain: NDArray[np.float64]) -> Ints:
    return (100 / (1 + np.exp(-gain / 1000))).astype(np.int64)


def _frequent(tasks: Sequence[Task]) -> list[tuple[Shape, int]]:
    """Return the most frequent shapes that make up COVERED of the tasks, with how often they come."""
    counts = Counter((task.cpu_milli, task.gpu_milli, task.gpus, task.gpu_types) for task in tasks)
    known: list[tuple[Shape, int]] = []
    covered = 0
    for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= COVERED * len(tasks):
            break
        known.append((shape, count))
        covered += count
    return known
