"""What queues used of late: halved every half-life in integers, whatever the steps and the order, without drift."""

import random
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gangline.events.policy import Policy, Queue, Quota
from gangline.scheduler.state import State
from gangline.scheduler.usage import FACTOR_BITS, decayed, factor_of, occupied, used
from tests.scheduler.world import SECOND_US, World

ONE = 1 << FACTOR_BITS
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
POLICY = Policy(half_life_us=24 * HOUR_US, usage_step_us=MINUTE_US)


def passes(state: State, time_us: int, policy: Policy = POLICY) -> State:
    """Return the state at a tick so much later."""
    return decayed(replace(state, before_us=state.now_us, now_us=state.now_us + time_us), policy)


def used_by(state: State, queue: str) -> int:
    return used(state.usage[queue], state.now_us) if queue in state.usage else 0


@pytest.mark.parametrize("halves", range(FACTOR_BITS))
def test_a_half_life_halves_exactly(halves: int) -> None:
    assert factor_of(halves * HOUR_US, HOUR_US) == ONE >> halves


def test_after_so_many_half_lives_that_nothing_is_left_the_factor_is_nought() -> None:
    assert factor_of(FACTOR_BITS * HOUR_US, HOUR_US) == 0


@given(time_us=st.integers(0, 40 * HOUR_US), half_life_us=st.integers(SECOND_US, 400 * HOUR_US))
def test_a_factor_is_two_to_the_minus_time_over_half_life(time_us: int, half_life_us: int) -> None:
    exact = ONE * 2 ** -(time_us / half_life_us)
    assert abs(factor_of(time_us, half_life_us) - exact) <= exact * 1e-9 + FACTOR_BITS


@given(first_us=st.integers(0, 20 * HOUR_US), second_us=st.integers(0, 20 * HOUR_US))
def test_two_steps_decay_as_one_of_both(first_us: int, second_us: int) -> None:
    half_life_us = 8 * HOUR_US
    both = factor_of(first_us, half_life_us) * factor_of(second_us, half_life_us) >> FACTOR_BITS
    assert abs(both - factor_of(first_us + second_us, half_life_us)) <= 4 * FACTOR_BITS


@given(times=st.lists(st.integers(1, 10), min_size=1, max_size=60))
def test_how_ticks_cut_the_time_changes_next_to_nothing(times: list[int]) -> None:
    state = occupied(State(), "q", 8_000)
    state = occupied(passes(state, HOUR_US), "q", -8_000)
    once = passes(state, sum(times) * MINUTE_US)
    for minutes in times:
        state = passes(state, minutes * MINUTE_US)
    assert abs(used_by(state, "q") - used_by(once, "q")) <= len(times) * (used_by(once, "q") >> 30) + 10


@given(seed=st.integers(0, 1_000))
def test_the_order_of_what_comes_at_one_time_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    changes = [(draw.choice("abc"), draw.randint(1, 8_000)) for _ in range(12)]
    shuffled = draw.sample(changes, len(changes))
    found = []
    for order in (changes, shuffled):
        state = passes(State(), 7 * MINUTE_US)
        for queue, milli in order:
            state = occupied(state, queue, milli)
        found.append({queue: used_by(passes(state, 95 * SECOND_US), queue) for queue in "abc"})
    assert found[0] == found[1]


def test_who_occupies_the_same_for_ever_approaches_its_limit_and_never_drifts_beyond() -> None:
    policy = replace(POLICY, half_life_us=HOUR_US)
    state, before = occupied(State(), "q", 4_000_000), 0
    for _ in range(40 * 60):
        state = passes(state, MINUTE_US, policy)
        assert before <= used_by(state, "q")
        before = used_by(state, "q")
    # The integral of 2^(-t / half-life), but for what decays with the whole step in which it was used.
    limit = 4_000_000 * policy.half_life_us / log(2)
    assert limit * 0.99 <= before <= limit
    for _ in range(10 * 60):
        state = passes(state, MINUTE_US, policy)
    assert used_by(state, "q") - before <= before >> 30


def test_who_has_left_is_forgotten_in_the_end() -> None:
    state = occupied(passes(occupied(State(), "q", 4_000_000), 10 * HOUR_US), "q", -4_000_000)
    for _ in range(70):
        state = passes(state, POLICY.half_life_us)
    assert not state.usage


def test_who_used_less_comes_first_and_who_weighs_twice_as_much_counts_half() -> None:
    queues = tuple(Queue(path=path, quotas=(Quota(weight=weight),)) for path, weight in (("a", 1), ("b", 2)))
    it = World(Policy(queues=queues))
    it.node("node-0", 8)
    it.tick()
    it.runs(queue="a", gpus=2)
    it.runs(queue="b", gpus=4)
    it.passes(3_600)
    assert it.state.policy is not None
    a, b = (it.views.uses.share_of(it.state, it.state.policy, path) for path in ("a", "b"))
    assert abs(a - b) <= a >> 9


def test_what_is_below_a_queue_counts_for_it() -> None:
    it = World(Policy(queues=tuple(Queue(path=path) for path in ("t", "t/a", "t/b"))))
    it.node("node-0", 8)
    it.tick()
    for queue in ("t/a", "t/b"):
        it.runs(queue=queue, gpus=2)
    it.passes(600)
    assert it.state.policy is not None
    shares = {path: it.views.uses.share_of(it.state, it.state.policy, path) for path in ("t", "t/a", "t/b")}
    assert shares["t"] == shares["t/a"] + shares["t/b"]
