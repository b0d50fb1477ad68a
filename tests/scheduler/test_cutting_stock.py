"""The cutting stock problem is solved exactly, and a rest is worth what pieces can make of it."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.scheduler.cutting_stock import MAX_PIVOTS, Cut, Pattern, solve

Pieces = list[tuple[int, int]]


def patterns(sizes: list[int], capacity: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to cut one stock: how many of each size."""
    if not sizes:
        yield ()
        return
    for count in range(capacity // sizes[0] + 1):
        for rest in patterns(sizes[1:], capacity - count * sizes[0]):
            yield (count, *rest)


def solved(columns: tuple[tuple[int, ...], ...], wanted: list[int]) -> list[Fraction] | None:
    """Return the solution of a square system by elimination, or None if it has none or several."""
    size = len(wanted)
    table = [
        [Fraction(column[row]) for column in columns] + [Fraction(count)]
        for row, count in zip(range(size), wanted, strict=True)
    ]
    for place in range(size):
        pivot = next((row for row in range(place, size) if table[row][place]), None)
        if pivot is None:
            return None
        table[place], table[pivot] = table[pivot], table[place]
        table[place] = [entry / table[place][place] for entry in table[place]]
        for row in range(size):
            if row != place:
                weight = table[row][place]
                table[row] = [mine - weight * theirs for mine, theirs in zip(table[row], table[place], strict=True)]
    return [row[-1] for row in table]


def least_by_brute_force(pieces: Pieces, capacity: int) -> Fraction:
    """Return the least of all basic solutions."""
    sizes, wanted = [size for size, _ in pieces], [count for _, count in pieces]
    ways = [pattern for pattern in patterns(sizes, capacity) if any(pattern)]
    solutions = (solved(columns, wanted) for columns in combinations(ways, len(sizes)))
    return min(sum(used) for used in solutions if used is not None and min(used) >= 0)  # type: ignore[return-value]


def assert_optimal(cut: Cut, pieces: Pieces, capacity: int) -> None:
    """Assert by duality: a solution, prices that no pattern beats, and the same value of both."""
    assert min(cut.used) >= 0
    assert sum(cut.used) == cut.stocks
    cut_in_all = {size: Fraction(0) for size, _ in pieces}
    for pattern, used in zip(cut.patterns, cut.used, strict=True):
        assert sum(pattern) <= capacity
        for size in pattern:
            cut_in_all[size] += used
    assert cut_in_all == dict(pieces)
    assert all(
        sum(cut.worth[size] * count for size, count in zip(cut_in_all, way, strict=True)) <= 1
        for way in patterns(list(cut_in_all), capacity)
    )
    assert sum(cut.worth[size] * count for size, count in pieces) == cut.stocks


def problems(capacity: int, most_sizes: int) -> st.SearchStrategy[Pieces]:
    sizes = st.dictionaries(st.integers(1, capacity), st.integers(1, 1000), min_size=1, max_size=most_sizes)
    return sizes.map(lambda found: sorted(found.items()))


@given(problems(7, 3))
def test_it_finds_the_least_of_all_basic_solutions(pieces: Pieces) -> None:
    assert solve(pieces, 7).stocks == least_by_brute_force(pieces, 7)


@given(problems(20, 6))
def test_its_prices_prove_it(pieces: Pieces) -> None:
    assert_optimal(solve(pieces, 20), pieces, 20)


@given(problems(20, 6), problems(20, 6))
def test_beginning_from_the_patterns_of_another_problem_gives_as_few(before: Pieces, now: Pieces) -> None:
    known = solve(before, 20).patterns
    cut = solve(now, 20, known)
    assert cut.stocks == solve(now, 20).stocks
    assert_optimal(cut, now, 20)


@given(problems(100, 30))
def test_a_rest_is_worth_no_less_than_a_smaller_one(pieces: Pieces) -> None:
    worth = solve(pieces, 100).worth
    assert len(worth) == 101
    assert worth[0] == 0
    assert worth[100] == 1
    assert list(worth) == sorted(worth)


@given(problems(100, 30))
def test_two_rests_are_worth_no_more_than_one_of_their_size(pieces: Pieces) -> None:
    worth = solve(pieces, 100).worth
    assert all(worth[left] + worth[right] <= worth[left + right] for left in range(101) for right in range(101 - left))


def worth_from(*steps: tuple[int, Fraction]) -> list[Fraction]:
    """Return the values of all rests, given from which rest on each holds."""
    return [next(value for least, value in reversed(steps) if rest >= least) for rest in range(101)]


WORTHS: dict[str, tuple[Pieces, list[Fraction]]] = {
    "whole stocks: a part is worth nothing": ([(100, 7)], worth_from((0, Fraction(0)), (100, Fraction(1)))),
    "halves": ([(50, 6)], worth_from((0, Fraction(0)), (50, Fraction(1, 2)), (100, Fraction(1)))),
    "a third that wastes": ([(30, 6)], worth_from(*((30 * n, Fraction(n, 3)) for n in range(4)))),
    "large pieces and small ones that fill them up": (
        [(60, 10), (40, 10)],
        worth_from((0, Fraction(0)), (40, Fraction(1, 2)), (80, Fraction(1))),
    ),
}


@pytest.mark.parametrize("name", WORTHS)
def test_a_rest_is_worth_what_pieces_make_of_it(name: str) -> None:
    pieces, worth = WORTHS[name]
    assert list(solve(pieces, 100).worth) == worth


def test_the_order_of_the_pieces_does_not_matter() -> None:
    pieces = [(46, 128), (23, 140), (81, 1078), (32, 328)]
    assert solve(pieces, 100) == solve(pieces[::-1], 100)


def test_patterns_of_sizes_that_no_longer_come_are_left_out() -> None:
    known: tuple[Pattern, ...] = ((46, 54), (23, 23, 23, 23))
    assert_optimal(solve([(23, 5)], 100, known), [(23, 5)], 100)


def test_every_size_at_once_is_solved_within_its_bound() -> None:
    pieces = [(size, 1 + size * size % 997) for size in range(1, 101)]
    cut = solve(pieces, 100)
    assert cut.worth[100] == 1, f"it gave up after {MAX_PIVOTS} pivots"
    assert sum(cut.worth[size] * count for size, count in pieces) == cut.stocks
