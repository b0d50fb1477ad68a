"""The order in which pending jobs are tried, and the natural order of ids."""

import re

from gangline.scheduler.state import Job

_DIGITS = re.compile("([0-9]+)")


def natural(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key by which node-2 comes before node-10: runs of digits compare as numbers."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name


def place_in_order(job: Job) -> tuple[bool, int, int]:
    """Return a job's sort key: recovering gangs, then priority (higher first), then submission."""
    return (not job.recovering, -job.spec.priority, job.submitted)
