"""A value over time is kept as the means of equal bins, whatever came between."""

from gangline.simulator.series import Series


def test_a_value_stands_until_it_is_changed() -> None:
    series = Series(10)
    series.add(0, 4)
    series.add(15, -2)
    assert series.means(30) == [4.0, 3.0, 2.0]
    assert series.mean(30) == 3.0


def test_the_last_bin_may_be_a_part_of_one() -> None:
    series = Series(10)
    series.put(5, 6)
    assert series.means(15) == [3.0, 6.0]


def test_what_comes_before_the_beginning_counts_from_there() -> None:
    series = Series(10)
    series.add(-9, 1)
    assert series.means(10) == [1.0]


def test_time_before_the_last_change_can_be_added_to() -> None:
    series = Series(10)
    series.add(25, 0)
    series.spend(5, 20, 2)
    assert series.means(30) == [1.0, 2.0, 0.0]


def test_a_series_that_never_changed_is_zero() -> None:
    assert Series(10).means(20) == [0.0, 0.0]
    assert Series(10).mean(0) == 0.0
