"""The level of service of a job: the less it has had, or the less it still needs, the sooner it runs.

A small job's level follows its run time so far, a multi-node gang's its expected remaining time. Without a declared
maximum that is what it has run already. With a maximum d, which is taken to be 1.2 to 4 times the truth with all
factors alike, it is the mean of what is left of the durations that its run time a still allows.
"""

from bisect import bisect_right

from gangline.events.policy import Policy
from gangline.events.types import JobSpec

LEAST_FACTOR_PERCENT = 120
MOST_FACTOR_PERCENT = 400
NEARLY_OVER_PERCENT = 125
"""Below this factor of maximum over run time a fiftieth of the maximum is expected to be left."""


def level_of(policy: Policy, spec: JobSpec, ran_us: int, *, is_gang: bool) -> int:
    """Return the level of a job that has run for so long in all, 0 being served first."""
    if "levels" not in policy.rules:
        return 0
    if not is_gang:
        return bisect_right(policy.levels_us, ran_us)
    return bisect_right(policy.gang_levels_us, remaining_us(ran_us, spec.max_runtime_us))


def remaining_us(ran_us: int, max_runtime_us: int | None) -> int:
    """Return how long a gang is expected to run on."""
    if max_runtime_us is None or max_runtime_us <= 0:
        return ran_us
    percent = MOST_FACTOR_PERCENT if ran_us <= 0 else min(MOST_FACTOR_PERCENT, max_runtime_us * 100 // ran_us)
    if percent <= NEARLY_OVER_PERCENT:
        return max_runtime_us // 50
    # d * ln(u / 1.2) / (u - 1.2) - a, in hundredths of u and 2^-32 of the logarithm
    mean = max_runtime_us * 100 * _ln(percent, LEAST_FACTOR_PERCENT) // (percent - LEAST_FACTOR_PERCENT) >> _BITS
    return max(mean - ran_us, 0)


_BITS = 32


def _ln(above: int, below: int) -> int:
    """Return ln(above / below) in 2^-32, by the series of the inverse hyperbolic tangent: 2 (z + z^3/3 + z^5/5 ...)."""
    z = ((above - below) << _BITS) // (above + below)
    square = z * z >> _BITS
    total, power, odd = 0, z, 1
    while power:
        total += power // odd
        power = power * square >> _BITS
        odd += 2
    return 2 * total
