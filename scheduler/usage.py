"""How much each queue has used of late: thousandths of GPUs times microseconds, halved every half-life, in integers.

A queue is charged for what its jobs occupy, from the binding to the report that the last rank is gone. What it used
decays at ticks that cross a multiple of the policy's `usage_step_us`; in between its occupation is added up exactly.
"""

from math import isqrt

from msgspec.structs import replace

from gangline.events.policy import Policy
from gangline.events.types import Share
from gangline.scheduler.state import State, Usage

FACTOR_BITS = 48
"""A factor is a number of 2^-48; a step's error is far below what one GPU uses in it."""


def milli_of(share: Share) -> int:
    """Return the thousandths of GPUs that a share holds."""
    return len(share.gpus) * share.gpu_milli


def occupied(state: State, queue: str, milli: int) -> State:
    """Return the state with so many thousandths of GPUs more (or less) occupied by a queue from now on."""
    if not milli:
        return state
    return replace(state, usage=state.usage.set(queue, _occupied(state.usage.get(queue, _NONE), state.now_us, milli)))


def used(usage: Usage, now_us: int) -> int:
    """Return what a queue has used of late."""
    return usage.decayed + usage.undecayed + usage.occupied_milli * (now_us - usage.since_us)


def decayed(state: State, policy: Policy) -> State:
    """Return the state at a tick, with every queue's usage decayed by the steps that the tick crossed."""
    steps = state.now_us // policy.usage_step_us - state.before_us // policy.usage_step_us
    if steps <= 0 or not state.usage:
        return state
    factor = factor_of(steps * policy.usage_step_us, policy.half_life_us)
    usage = state.usage
    for queue, one in sorted(state.usage.items()):
        after = Usage(
            decayed=used(one, state.now_us) * factor >> FACTOR_BITS,
            occupied_milli=one.occupied_milli,
            since_us=state.now_us,
        )
        # A queue that has long used nothing need not be remembered.
        usage = usage.set(queue, after) if after.decayed or after.occupied_milli else usage.delete(queue)
    return replace(state, usage=usage)


def factor_of(time_us: int, half_life_us: int) -> int:
    """Return 2^(-time / half-life), in 2^-FACTOR_BITS, as a product of square roots of square roots of a half."""
    halves, rest = divmod(time_us, half_life_us)
    if halves >= FACTOR_BITS:
        return 0
    factor = 1 << FACTOR_BITS
    root = 1 << FACTOR_BITS
    root >>= 1
    for _ in range(FACTOR_BITS):
        if not rest:
            break
        root = isqrt(root << FACTOR_BITS)
        rest *= 2
        if rest >= half_life_us:
            rest -= half_life_us
            factor = factor * root >> FACTOR_BITS
    return factor >> halves


def _occupied(usage: Usage, now_us: int, milli: int) -> Usage:
    return Usage(
        decayed=usage.decayed,
        undecayed=usage.undecayed + usage.occupied_milli * (now_us - usage.since_us),
        occupied_milli=usage.occupied_milli + milli,
        since_us=now_us,
    )


_NONE = Usage()
