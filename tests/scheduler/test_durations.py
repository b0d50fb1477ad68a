"""Durations by their logarithm: what is expected of a job, given its age, and of whom it is learnt."""

import random

from immutables import Map

from gangline.events.types import HOUR_US, SECOND_US
from gangline.scheduler import durations
from gangline.scheduler.durations import ENOUGH, MAX_GROUPS, bucket, end_us, expected_us, observed


def seen(*run_us: int, queue: str = "q", gpus: int = 1) -> durations.Durations:
    counts: durations.Durations = Map()
    for one in run_us:
        counts = observed(counts, queue, gpus, one)
    return counts


def test_every_run_time_ends_with_its_bucket_or_before_and_at_most_a_fifth_earlier() -> None:
    draw = random.Random(1)
    for _ in range(2_000):
        seconds = int(2 ** draw.uniform(0, 25))
        index = bucket(seconds * SECOND_US)
        assert end_us(index - 1) <= seconds * SECOND_US < end_us(index) or seconds == 1
        assert seconds < 4 or end_us(index) <= 1.26 * (seconds + 1) * SECOND_US


def test_the_ninetieth_percentile_is_expected_within_a_bucket() -> None:
    counts = seen(*(minute * 60 * SECOND_US for minute in range(1, 101)))
    expected = expected_us(counts, "q", 1, 0)
    assert expected is not None
    assert 90 * 60 * SECOND_US <= expected <= 1.26 * 90 * 60 * SECOND_US


def test_with_age_only_those_count_that_ran_as_long() -> None:
    counts = seen(*[60 * SECOND_US] * 95, *[10 * HOUR_US] * 5)
    young, old = expected_us(counts, "q", 1, 0), expected_us(counts, "q", 1, HOUR_US)
    assert young is not None
    assert old is not None
    assert young < HOUR_US < 10 * HOUR_US <= old


def test_who_outlived_all_is_expected_to_run_as_long_again() -> None:
    assert expected_us(seen(*[HOUR_US] * ENOUGH), "q", 1, 5 * HOUR_US) == 10 * HOUR_US


def test_a_group_that_has_seen_too_little_asks_the_broader_one() -> None:
    counts = seen(*[HOUR_US] * ENOUGH, queue="other", gpus=8)
    assert expected_us(counts, "q", 8, 0) == expected_us(counts, "other", 8, 0)
    assert expected_us(counts, "q", 4, 0) == expected_us(counts, "other", 8, 0)
    assert expected_us(seen(HOUR_US), "q", 1, 0) is None


def test_groups_are_bounded_and_the_broadest_goes_on_counting() -> None:
    counts: durations.Durations = Map()
    for number in range(MAX_GROUPS + 10):
        counts = observed(counts, f"q-{number}", 1, HOUR_US)
    assert len(counts) == MAX_GROUPS
    assert sum(counts[""]) == MAX_GROUPS + 10
