"""What a free share of a device is worth to the jobs to come, learnt from those that have arrived.

A hole is worth what the coming sizes can do with it: the cutting stock problem of the sizes seen so far gives what a
piece is worth, and so a rest. Two further things bound that: the CPU and the memory that jobs ask for with their GPUs,
and how scarce a GPU type is beside the demand for it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events.decisions import TypePrice, WorthLearnt
from gangline.events.types import MILLION, WHOLE_MILLI, Value
from gangline.scheduler.cutting_stock import solve

STEP_MILLI = 10
"""Sizes are rounded up, and free shares down, to this; so the problem has at most 100 sizes."""
STEPS = WHOLE_MILLI // STEP_MILLI
SEEN = 1_000
"""What one GPU asked for adds to its size, so that decay can take a part of it."""
RATIO_PERCENT = 90
"""Of the CPU and memory asked a GPU: at 100 what is left of both runs out before the GPUs, and large jobs are lost."""
MAX_PRICE = 1_000_000
MAX_TYPE_SETS = 256
"""Further sets of GPU types that jobs accept count as if they accepted any."""

LINEAR = tuple(range(0, WHOLE_MILLI + 1, STEP_MILLI))
"""What holes are worth before anything has arrived: their size."""


UNLEARNT = WorthLearnt(arrivals=0, of_free=LINEAR, prices=(), cpu_milli_per_gpu=0, memory_bytes_per_gpu=0, basis=())
"""Before anything has arrived, and where the rule is off: plain best fit."""


class Seen(Value, frozen=True, kw_only=True):
    """Sums over the jobs that have arrived, and what was learnt of them last."""

    arrivals: int = 0
    sizes: tuple[int, ...] = (0,) * (STEPS + 1)
    """GPUs asked for, each SEEN, by the share of a device that they take, in hundredths rounded up."""
    by_types: tuple[tuple[tuple[str, ...], int], ...] = ()
    """Thousandths of GPUs asked for by jobs that accept only these types; sorted."""
    gpu_milli: int = 0
    cpu_milli: int = 0
    """Asked for by jobs with GPUs, as the others."""
    memory_bytes: int = 0
    worth: WorthLearnt = UNLEARNT


def arrived(
    seen: Seen, *, gpus: int, gpu_milli: int, cpu_milli: int, memory_bytes: int, gpu_types: Sequence[str] = ()
) -> Seen:
    """Return the sums with one more job: `gpu_milli` of each of its GPUs, CPU and memory in all."""
    if not gpus:
        return replace(seen, arrivals=seen.arrivals + 1)
    size = -(-gpu_milli // STEP_MILLI)
    milli = gpus * gpu_milli
    types = tuple(sorted(set(gpu_types)))
    return replace(
        seen,
        arrivals=seen.arrivals + 1,
        sizes=(*seen.sizes[:size], seen.sizes[size] + gpus * SEEN, *seen.sizes[size + 1 :]),
        by_types=_added(seen.by_types, types, milli) if types else seen.by_types,
        gpu_milli=seen.gpu_milli + milli,
        cpu_milli=seen.cpu_milli + cpu_milli,
        memory_bytes=seen.memory_bytes + memory_bytes,
    )


def is_due(seen: Seen, every: int) -> bool:
    """Whether to learn again: after 1, 2, 4, 8, ... arrivals, and then after every so many."""
    last = seen.worth.arrivals
    return seen.arrivals >= min(1 << last.bit_length(), last + every)


def learn(seen: Seen, free_milli: Sequence[tuple[str, int]]) -> WorthLearnt:
    """Return what the jobs seen make of a fleet with so many thousandths of GPUs free of each type."""
    pieces = [(size, count) for size, count in enumerate(seen.sizes) if count]
    of_free, basis = LINEAR, seen.worth.basis
    if pieces:
        cut = solve(pieces, STEPS, basis)
        of_free, basis = tuple(int(worth * WHOLE_MILLI) for worth in cut.worth), cut.patterns
    return WorthLearnt(
        arrivals=seen.arrivals,
        of_free=of_free,
        prices=_prices(seen, free_milli),
        cpu_milli_per_gpu=_per_gpu(seen.cpu_milli, seen.gpu_milli),
        memory_bytes_per_gpu=_per_gpu(seen.memory_bytes, seen.gpu_milli),
        basis=basis,
    )


def learnt(seen: Seen, worth: WorthLearnt, kept_ppm: int) -> Seen:
    """Return the sums with what was learnt of them, and this part of them kept: with time, old jobs count for less."""
    if kept_ppm >= MILLION:
        return replace(seen, worth=worth)
    return replace(
        seen,
        sizes=tuple(count * kept_ppm // MILLION for count in seen.sizes),
        by_types=tuple((types, kept) for types, milli in seen.by_types if (kept := milli * kept_ppm // MILLION)),
        gpu_milli=seen.gpu_milli * kept_ppm // MILLION,
        cpu_milli=seen.cpu_milli * kept_ppm // MILLION,
        memory_bytes=seen.memory_bytes * kept_ppm // MILLION,
        worth=worth,
    )


def _added(
    by_types: tuple[tuple[tuple[str, ...], int], ...], types: tuple[str, ...], milli: int
) -> tuple[tuple[tuple[str, ...], int], ...]:
    known = dict(by_types)
    if types not in known and len(known) >= MAX_TYPE_SETS:
        return by_types
    known[types] = known.get(types, 0) + milli
    return tuple(sorted(known.items()))


def _per_gpu(asked: int, gpu_milli: int) -> int:
    return asked * WHOLE_MILLI * RATIO_PERCENT // (gpu_milli * 100) if gpu_milli else 0


def _prices(seen: Seen, free_milli: Sequence[tuple[str, int]]) -> tuple[TypePrice, ...]:
    """Return what each type costs: for each set with it, the set's share of demand over its share of what is free."""
    free = dict(free_milli)
    prices = dict.fromkeys(sorted(free), 0)
    total = sum(free.values())
    for types, milli in seen.by_types:
        free_of_set = sum(free.get(gpu_type, 0) for gpu_type in types)
        if not free_of_set or not seen.gpu_milli:
            continue
        price = milli * total * WHOLE_MILLI // (seen.gpu_milli * free_of_set)
        for gpu_type in types:
            if gpu_type in prices:
                prices[gpu_type] = min(prices[gpu_type] + price, MAX_PRICE)
    return tuple(TypePrice(gpu_type=gpu_type, price=price) for gpu_type, price in sorted(prices.items()) if price)
