"""How long jobs have run, counted by the logarithm of it, per queue and GPUs, per GPUs, and of all.

A count's bucket spans a quarter of an octave of seconds, so what is read from it is at most a fifth too long. Of the
counts longer than a job's age the 90th percentile is what it is expected to run in all; the first group that has seen
enough jobs is asked.
"""

from immutables import Map

from gangline.events.types import SECOND_US

BUCKETS_PER_OCTAVE = 4
PERCENT = 90
ENOUGH = 20
"""Jobs that a group has to have seen, or a broader one is asked."""
MAX_GROUPS = 2_000
"""Further groups of queue and GPUs are not counted by themselves."""

Durations = Map[str, tuple[int, ...]]
"""Counts by bucket, by group; a group's name is `queue GPUs`, `GPUs` or empty."""


def bucket(run_us: int) -> int:
    """Return the bucket of a run time: four to each doubling, of whole seconds."""
    seconds = max(run_us // SECOND_US, 1)
    octave = seconds.bit_length() - 1
    # The two bits behind the highest one say which quarter it is.
    quarter = (seconds << 2 >> octave) & 3
    return octave * BUCKETS_PER_OCTAVE + quarter


def end_us(index: int) -> int:
    """Return the run time at which a bucket ends."""
    octave, quarter = divmod(index + 1, BUCKETS_PER_OCTAVE)
    return ((BUCKETS_PER_OCTAVE + quarter) << octave) * SECOND_US // BUCKETS_PER_OCTAVE


def observed(durations: Durations, queue: str, gpus: int, run_us: int) -> Durations:
    """Return the counts with one more job that has ended."""
    index = bucket(run_us)
    for group in _groups(queue, gpus):
        counts = durations.get(group)
        if counts is None:
            if len(durations) >= MAX_GROUPS:
                continue
            counts = ()
        counts += (0,) * (index + 1 - len(counts))
        durations = durations.set(group, (*counts[:index], counts[index] + 1, *counts[index + 1 :]))
    return durations


def expected_us(durations: Durations, queue: str, gpus: int, age_us: int) -> int | None:
    """Return how long a job of this age is expected to run in all; None if too little is known of such."""
    for group in _groups(queue, gpus):
        counts = durations.get(group, ())
        if sum(counts) >= ENOUGH:
            return _percentile(counts, age_us)
    return None


def _percentile(counts: tuple[int, ...], age_us: int) -> int:
    first = bucket(age_us) if age_us >= SECOND_US else 0
    longer = counts[first:]
    wanted = -(-sum(longer) * PERCENT // 100)
    if not wanted:
        return 2 * age_us  # it has outlived all that were seen: as long again
    seen = 0
    for index, count in enumerate(longer, first):
        seen += count
        if seen >= wanted:
            return max(end_us(index), age_us)
    return 2 * age_us


def _groups(queue: str, gpus: int) -> tuple[str, str, str]:
    return f"{queue} {gpus}", str(gpus), ""
