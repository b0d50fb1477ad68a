"""Levels of service: a small job's by its run time, a gang's by what it is expected to run on."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.events.policy import RULES, Policy
from gangline.events.types import JobSpec
from gangline.scheduler.levels import level_of, remaining_us
from tests.scheduler.world import SECOND_US

HOUR_US = 3600 * SECOND_US
POLICY = Policy(levels_us=(8 * HOUR_US, 80 * HOUR_US), gang_levels_us=(12 * HOUR_US, 24 * HOUR_US))


def spec(max_runtime_us: int | None = None) -> JobSpec:
    return JobSpec(name="j", queue="q", command=("c",), gpus=1, max_runtime_us=max_runtime_us)


@pytest.mark.parametrize(
    ("ran_us", "level"),
    [(0, 0), (8 * HOUR_US - 1, 0), (8 * HOUR_US, 1), (80 * HOUR_US - 1, 1), (80 * HOUR_US, 2), (900 * HOUR_US, 2)],
)
def test_a_small_jobs_level_goes_up_just_when_it_has_run_so_long(ran_us: int, level: int) -> None:
    assert level_of(POLICY, spec(), ran_us, is_gang=False) == level


def test_what_a_small_job_declares_does_not_change_its_level() -> None:
    assert level_of(POLICY, spec(9 * HOUR_US), 8 * HOUR_US, is_gang=False) == 1


def test_with_the_rule_off_all_are_of_one_level() -> None:
    policy = Policy(rules=tuple(rule for rule in RULES if rule != "levels"))
    assert level_of(policy, spec(), 900 * HOUR_US, is_gang=False) == 0
    assert level_of(policy, spec(), 900 * HOUR_US, is_gang=True) == 0


@given(ran_us=st.integers(0, 10_000 * HOUR_US))
def test_a_gang_that_declares_nothing_is_expected_to_run_as_long_again(ran_us: int) -> None:
    assert remaining_us(ran_us, None) == ran_us


@given(ran_us=st.integers(1, 2_000 * HOUR_US), max_runtime_us=st.integers(1, 2_000 * HOUR_US))
def test_a_gang_that_declares_a_maximum_is_expected_to_run_on_by_the_formula(ran_us: int, max_runtime_us: int) -> None:
    """The factor u is min(4, d / a): d ln(u / 1.2) / (u - 1.2) - a, or 0.02 d if u <= 1.25."""
    u = min(400, max_runtime_us * 100 // ran_us) / 100
    if u <= 1.25:
        assert remaining_us(ran_us, max_runtime_us) == max_runtime_us // 50
        return
    expected = max(max_runtime_us * log(u / 1.2) / (u - 1.2) - ran_us, 0)
    assert abs(remaining_us(ran_us, max_runtime_us) - expected) <= max_runtime_us * 1e-6 + 2


@given(ran_us=st.integers(0, 2_000 * HOUR_US), max_runtime_us=st.integers(1, 2_000 * HOUR_US))
def test_what_is_left_is_never_less_than_nothing_nor_more_than_the_maximum(ran_us: int, max_runtime_us: int) -> None:
    assert 0 <= remaining_us(ran_us, max_runtime_us) <= max_runtime_us
