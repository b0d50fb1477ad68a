"""The attempts that could give way, as columns of integers in the order of their submission.

An attempt that was told to stop, that has failed or that left a node is none of them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.events.policy import Policy
from gangline.events.types import SECOND_US, WHOLE_MILLI, Share
from gangline.scheduler.elastic import running, size_of, sizes
from gangline.scheduler.fleet import Flags, Ints
from gangline.scheduler.levels import level_of
from gangline.scheduler.shapes import is_gang
from gangline.scheduler.state import Attempt, Job, State
from gangline.scheduler.views.nodes import NodesView

SEVERAL = -1
"""The node of an attempt that lies on several."""

Place = tuple[int, str]
"""(submission, job id): the order of the rows."""

_FIELDS = (
    "attempt",
    "queue",
    "priority",
    "node",
    "column",
    "type_index",
    "gpus",
    "milli",
    "cpu_milli",
    "memory_bytes",
    "gang",
    "preemptible",
    "bound_at_us",
    "ran_us",
    "ran_since_evicted_us",
    "committed_at_us",
    "waited_us",
    "preemptions",
    "moves",
    "surplus",
    "growth",
)
_NODE = _FIELDS.index("node")
_GROWTH = _FIELDS.index("growth")
_FIRST_SLOTS = 256


class Runs(NamedTuple):
    """The attempts at one time, one row each; times are in microseconds."""

    job_ids: tuple[str, ...]
    queues: tuple[str, ...]
    queue: Ints
    """Into `queues`."""
    priority: Ints
    node: Ints
    """Row of the fleet; SEVERAL for more than one."""
    column: Ints
    """Of the device of which an attempt takes a part, or several roles of it do; -1 for others."""
    type_index: Ints
    gpus: Ints
    """Whole devices; 0 for a fraction."""
    milli: Ints
    """Thousandths of GPUs in all."""
    cpu_milli: Ints
    memory_bytes: Ints
    gang: Flags
    """Whether it asks for several nodes."""
    preemptible: Flags
    run_us: Ints
    """Of the live attempt."""
    since_evicted_us: Ints
    """Run time since the job gave way last, or started first: failures do not begin it anew."""
    level: Ints
    lost: Ints
    """Thousandths of GPUs times seconds since the last committed checkpoint."""
    waited_us: Ints
    preemptions: Ints
    moves: Ints
    surplus: Ints
    """GPUs that an elastic one has above its least size."""
    growth: Ints
    """GPUs that an elastic one has less than its largest size."""

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.job_ids)

    @property
    def scattered(self) -> Flags:
        """Which lie on several nodes, or take parts of several devices, so that more must be looked at than one."""
        found: Flags = (self.node == SEVERAL) | ((self.column < 0) & (self.milli != self.gpus * WHOLE_MILLI))
        return found


class Span(NamedTuple):
    """Where an attempt on several nodes holds whole devices."""

    row: int
    """Of the attempt."""
    nodes: Ints
    devices: Ints


class RunningView:
    """Keeps a row an attempt. What `runs` returns depends on the state alone, not on how it came about."""

    def __init__(self) -> None:
        self._order: list[Place] = []
        self._job_ids: list[str] = []
        """In that order."""
        self._slots: list[int] = []
        """Of the table, in that order."""
        self._places: dict[str, Place] = {}
        self._rows: dict[str, tuple[int, ...]] = {}
        self._changed: dict[str, None] = {}
        """Jobs that are to be looked at before the next answer."""
        self._spare_slots: list[int] = []
        self._growing = 0
        """How many could grow."""
        self._table: Ints = np.zeros((len(_FIELDS), _FIRST_SLOTS), np.int64)
        """A row a field, so that what is computed over all attempts reads what lies together."""
        self._queues: dict[str, int] = {}
        self._spans: dict[str, tuple[Ints, Ints]] = {}
        """Rows of the fleet and whole devices there, of attempts on several nodes."""
        self._nodes = NodesView()

    def rebuild(self, state: State, nodes: NodesView) -> None:
        """Take everything from the state; `nodes` follows the same state."""
        self._nodes = nodes
        self._order, self._job_ids, self._slots, self._spare_slots = [], [], [], []
        self._places, self._rows, self._queues, self._spans = {}, {}, {}, {}
        self._growing = 0
        self._changed = dict.fromkeys(sorted(state.jobs))

    def follow(self, _state: State, what: str, key: str) -> None:
        """Follow one change."""
        if what == "job":
            self._changed[key] = None

    def _catch_up(self, state: State) -> None:
        for job_id in self._changed:
            job = state.jobs.get(job_id)
            attempt = job.attempt if job is not None else None
            if job is None or attempt is None or job.cancelled or not attempt.is_whole:
                if job_id in self._places:
                    self._drop(job_id)
                continue
            row = self._row(state, job, attempt)
            if self._rows.get(job_id) == row:
                continue
            if job_id in self._places:
                self._drop(job_id)
            self._add(job, attempt, row)
        self._changed.clear()

    def _drop(self, job_id: str) -> None:
        place = self._places.pop(job_id)
        self._growing -= self._rows.pop(job_id)[_GROWTH] > 0
        at = bisect_left(self._order, place)
        del self._order[at]
        del self._job_ids[at]
        self._spare_slots.append(self._slots.pop(at))
        self._spans.pop(job_id, None)

    def _add(self, job: Job, attempt: Attempt, row: tuple[int, ...]) -> None:
        slot = self._spare_slots.pop() if self._spare_slots else len(self._places)
        if slot == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
        self._table[:, slot] = row
        place = (job.submitted, job.job_id)
        at = bisect_left(self._order, place)
        self._order.insert(at, place)
        self._job_ids.insert(at, job.job_id)
        self._slots.insert(at, slot)
        self._places[job.job_id] = place
        self._rows[job.job_id] = row
        self._growing += row[_GROWTH] > 0
        if row[_NODE] == SEVERAL:
            self._spans[job.job_id] = self._span(attempt)

    def runs(self, state: State, policy: Policy) -> Runs:
        """Return the attempts as of the state's time."""
        self._catch_up(state)
        table = self._table.take(np.array(self._slots, np.int64), axis=1)
        columns = {name: table[place] for place, name in enumerate(_FIELDS)}
        job_ids = tuple(self._job_ids)
        run_us = state.now_us - columns["bound_at_us"]
        gang = columns["gang"].astype(np.bool_)
        level: Ints = np.zeros(len(job_ids), np.int64)
        if "levels" in policy.rules:
            level = np.searchsorted(np.array(policy.levels_us, np.int64), columns["ran_us"] + run_us, side="right")
            for row in np.flatnonzero(gang).tolist():
                job = state.jobs[job_ids[row]]
                level[row] = level_of(policy, job.spec, job.ran_us + int(run_us[row]), is_gang=True)
        return Runs(
            job_ids=job_ids,
            queues=tuple(sorted(self._queues, key=lambda name: self._queues[name])),
            queue=columns["queue"],
            priority=columns["priority"],
            node=columns["node"],
            column=columns["column"],
            type_index=columns["type_index"],
            gpus=columns["gpus"],
            milli=columns["milli"],
            cpu_milli=columns["cpu_milli"],
            memory_bytes=columns["memory_bytes"],
            gang=gang,
            preemptible=columns["preemptible"].astype(np.bool_),
            run_us=run_us,
            since_evicted_us=columns["ran_since_evicted_us"] + run_us,
            level=level,
            lost=columns["milli"] * ((state.now_us - columns["committed_at_us"]) // SECOND_US),
            waited_us=columns["waited_us"],
            preemptions=columns["preemptions"],
            moves=columns["moves"],
            surplus=columns["surplus"],
            growth=columns["growth"],
        )

    def any_grows(self, state: State) -> bool:
        """Whether there is an attempt that could grow."""
        self._catch_up(state)
        return self._growing > 0

    def row_of(self, job_id: str) -> int | None:
        """Return the row of a job's attempt in the runs returned last, if it is one of them."""
        place = self._places.get(job_id)
        return None if place is None else bisect_left(self._order, place)

    def spans(self, runs: Runs, wanted: Flags, nodes: Flags) -> tuple[Span, ...]:
        """Return where those wanted hold whole devices, as far as that is on these nodes."""
        found = []
        for row in np.flatnonzero(wanted).tolist():
            at, devices = self._spans[runs.job_ids[row]]
            inside = nodes[at]
            if inside.any():
                found.append(Span(row, at[inside], devices[inside]))
        return tuple(found)

    def _row(self, state: State, job: Job, attempt: Attempt) -> tuple[int, ...]:
        fleet = self._nodes.fleet
        shares = attempt.bound.shares
        first = shares[0]
        row = fleet.row[first.node_id]
        one_node = all(share.node_id == first.node_id for share in shares)
        own = sizes(state.policy, job.spec)
        return (
            job.attempts,
            self._queues.setdefault(job.spec.queue, len(self._queues)),
            job.spec.priority,
            row if one_node else SEVERAL,
            _column(state, shares) if one_node else -1,
            int(fleet.type_index[row]),
            sum(len(share.gpus) for share in shares if share.gpu_milli == WHOLE_MILLI),
            sum(len(share.gpus) * share.gpu_milli for share in shares),
            sum(share.cpu_milli for share in shares),
            sum(share.memory_bytes for share in shares),
            is_gang(running(job.spec, attempt), fleet.widest_of(job.spec.gpu_types)),
            job.spec.preemptible,
            attempt.bound_at_us,
            job.ran_us,
            job.ran_since_evicted_us,
            attempt.committed_at_us,
            job.waited_us,
            job.preemptions,
            job.moves,
            max(size_of(attempt) - own[0], 0) if len(own) > 1 else 0,
            max(own[-1] - size_of(attempt), 0) if len(own) > 1 else 0,
        )

    def _span(self, attempt: Attempt) -> tuple[Ints, Ints]:
        whole = [share for share in attempt.bound.shares if share.gpu_milli == WHOLE_MILLI]
        rows = [self._nodes.fleet.row[share.node_id] for share in whole]
        return np.array(rows, np.int64), np.array([len(share.gpus) for share in whole], np.int64)


def _column(state: State, shares: Sequence[Share]) -> int:
    """Return the column of the one device of which parts are taken; -1 for whole devices, several, or none."""
    parts = [share for share in shares if share.gpus]
    if (
        not parts
        or len(parts[0].gpus) > 1
        or any(share.gpus != parts[0].gpus or share.gpu_milli == WHOLE_MILLI for share in parts)
    ):
        return -1
    gpu, gpus = parts[0].gpus[0], state.nodes[parts[0].node_id].gpus
    return gpus.index(gpu) if gpu in gpus else -1
