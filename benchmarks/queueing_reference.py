"""The queueing experiment, sharing nothing with gangline: when every job starts under a strict order."""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Asked(NamedTuple):
    """A job: its position in the order of arrival, when it arrives, how long it runs, how many GPUs it takes."""

    position: int
    arrival_s: int
    duration_s: int
    gpus: int


def place(free: list[int], gpus: int, size: int) -> list[tuple[int, int]] | None:
    """Return (node, GPUs) by best fit; a larger job takes the lowest wholly free nodes, and its remainder the next."""
    if gpus <= size:
        fits = [(left, node) for node, left in enumerate(free) if left >= gpus]
        return [(min(fits)[1], gpus)] if fits else None
    whole, rest = divmod(gpus, size)
    chosen = [node for node, left in enumerate(free) if left == size][:whole]
    if len(chosen) < whole:
        return None
    parts = [(node, size) for node in chosen]
    if rest:
        last = next((node for node, left in enumerate(free) if left >= rest and node not in chosen), None)
        if last is None:
            return None
        parts.append((last, rest))
    return parts


def starts(jobs: Sequence[Asked], nodes: int, size: int, order: Callable[[Asked], tuple[int, ...]]) -> dict[int, int]:
    """Return when each job starts, by position; the head of the queue blocks those behind it."""
    free = [size] * nodes
    arriving = sorted(jobs)
    ends: list[tuple[int, int, list[tuple[int, int]]]] = []
    queue: list[tuple[tuple[int, ...], Asked]] = []
    found: dict[int, int] = {}
    upcoming = 0
    while upcoming < len(arriving) or ends:
        times = [ends[0][0]] if ends else []
        if upcoming < len(arriving):
            times.append(arriving[upcoming].arrival_s)
        now_s = min(times)
        while ends and ends[0][0] == now_s:
            for node, gpus in heapq.heappop(ends)[2]:
                free[node] += gpus
        while upcoming < len(arriving) and arriving[upcoming].arrival_s == now_s:
            heapq.heappush(queue, (order(arriving[upcoming]), arriving[upcoming]))
            upcoming += 1
        while queue and (parts := place(free, queue[0][1].gpus, size)) is not None:
            job = heapq.heappop(queue)[1]
            found[job.position] = now_s
            for node, gpus in parts:
                free[node] -= gpus
            heapq.heappush(ends, (now_s + job.duration_s, job.position, parts))
    return found


def by_submission(job: Asked) -> tuple[int, ...]:
    """Order by arrival."""
    return (job.position,)


def by_duration(job: Asked) -> tuple[int, ...]:
    """Order by the true duration, then by arrival."""
    return (job.duration_s, job.position)
