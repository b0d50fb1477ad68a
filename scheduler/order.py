"""The order in which pending jobs are tried, and the natural order of ids."""

import re

from gangline.events.policy import Policy
from gangline.scheduler.state import Job

UNDECLARED_US = 1 << 62
"""What orders a job without max_runtime behind all that declare one."""

_DIGITS = re.compile("([0-9]+)")


def natural(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key by which node-2 comes before node-10: runs of digits compare as numbers."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name


def place_in_order(job: Job, policy: Policy | None) -> tuple[int, ...]:
    """Return a job's sort key: as policy orders, else recovering gangs, then by priority; then by submission."""
    if policy is not None and policy.order == "shortest_declared":
        return (UNDECLARED_US if job.spec.max_runtime_us is None else job.spec.max_runtime_us, job.submitted)
    if policy is not None and policy.order == "submission":
        return (job.submitted,)
    return (not job.recovering, -job.spec.priority, job.submitted)
