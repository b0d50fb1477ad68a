"""The cutting stock problem in exact numbers: how few stocks hold all pieces, and what a rest of a stock is worth then.

Gilmore and Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 9 (1961): the
linear relaxation over all patterns, of which a knapsack finds the ones that help. The inverse of the basis is kept in
whole numbers over one denominator (Edmonds' integer pivoting), and the row that leaves is chosen lexicographically, so
it is exact, ends, and gives the same numbers everywhere.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

MAX_PIVOTS = 2_000
"""Most ever seen are some hundred. Beyond this the values are those of a solution that could be bettered a little."""

Pattern = tuple[int, ...]
"""The pieces that are cut from one stock, by their sizes, ascending."""


class Cut(NamedTuple):
    """A solution: `stocks` in all, a basis of patterns, each used `used` times, and what a rest of each size is worth.

    `worth[h]` is in parts of a stock; it never falls with h.
    """

    stocks: Fraction
    patterns: tuple[Pattern, ...]
    used: tuple[Fraction, ...]
    worth: tuple[Fraction, ...]


class _Basis:
    """The basis of the simplex method: the inverse is `rows / denominator`, column i being the i-th size."""

    def __init__(self, sizes: Sequence[int], counts: Sequence[int]) -> None:
        """Begin with one piece a stock."""
        self.sizes = sizes
        self.patterns: list[Pattern] = [(size,) for size in sizes]
        self.rows = [[int(row == column) for column in range(len(sizes))] for row in range(len(sizes))]
        self.used = list(counts)
        """Times the denominator, as the inverse."""
        self.denominator = 1
        self.pivots = 0

    def prices(self) -> list[int]:
        """Return what a piece of each size costs (the duals, times the denominator); every stock costs 1."""
        return [sum(column) for column in zip(*self.rows, strict=True)]

    def enter(self, pattern: Pattern) -> None:
        """Bring a pattern into the basis, in place of the one that reaches zero first."""
        entering = [(place, count) for place, size in enumerate(self.sizes) if (count := pattern.count(size))]
        weights = [sum(row[place] * count for place, count in entering) for row in self.rows]
        leaving = self._leaving(weights)
        pivot, pivot_row, pivot_used = weights[leaving], self.rows[leaving], self.used[leaving]
        for row, weight in enumerate(weights):
            if row == leaving:
                continue
            # Exact: every entry is a determinant (Sylvester's identity).
            self.rows[row] = [
                (pivot * mine - weight * theirs) // self.denominator
                for mine, theirs in zip(self.rows[row], pivot_row, strict=True)
            ]
            self.used[row] = (pivot * self.used[row] - weight * pivot_used) // self.denominator
        self.denominator = pivot
        self.patterns[leaving] = pattern
        self.pivots += 1

    def _leaving(self, weights: Sequence[int]) -> int:
        """Return the row with the lexicographically least ratio, of which there is only one."""
        best = -1
        for row, weight in enumerate(weights):
            if weight <= 0:
                continue
            if best >= 0:
                theirs = weights[best]
                mine = [self.used[row] * theirs, *(entry * theirs for entry in self.rows[row])]
                if mine >= [self.used[best] * weight, *(entry * weight for entry in self.rows[best])]:
                    continue
            best = row
        return best


def solve(pieces: Sequence[tuple[int, int]], capacity: int, known: Sequence[Pattern] = ()) -> Cut:
    """Return the fewest stocks of this capacity that hold so many pieces of each size, in fractions of patterns.

    `pieces` holds (size, how many), at least one size, each at most the capacity. `known` patterns, such as those
    of a like problem, are tried first; they change how long it takes, and which of several equally good solutions it
    is.
    """
    wanted = sorted(pieces)
    sizes = [size for size, _ in wanted]
    basis = _Basis(sizes, [count for _, count in wanted])
    held = frozenset(sizes)
    pool = [pattern for pattern in known if held.issuperset(pattern)]
    pool += [(size,) * (capacity // size) for size in sizes]
    while pool and basis.pivots < MAX_PIVOTS:
        prices = dict(zip(sizes, basis.prices(), strict=True))
        saved = [sum(prices[size] for size in pattern) for pattern in pool]
        best = max(range(len(pool)), key=lambda place: (saved[place], -place))
        if saved[best] <= basis.denominator:
            break
        basis.enter(pool[best])
    while True:
        worth, first = fill(sizes, basis.prices(), capacity)
        if worth[capacity] <= basis.denominator or basis.pivots >= MAX_PIVOTS:
            break
        basis.enter(_pattern(first, capacity))
    return Cut(
        stocks=Fraction(sum(basis.used), basis.denominator),
        patterns=tuple(basis.patterns),
        used=tuple(Fraction(used, basis.denominator) for used in basis.used),
        worth=tuple(Fraction(value, basis.denominator) for value in worth),
    )


def fill(sizes: Sequence[int], values: Sequence[int], capacity: int) -> tuple[list[int], list[int]]:
    """Return the most value that pieces in a rest of each size can have, and one such piece, or 0 for a lost unit."""
    worth, first = [0], [0]
    for rest in range(1, capacity + 1):
        best, piece = worth[rest - 1], 0
        for size, value in zip(sizes, values, strict=True):
            if size > rest:
                break
            if worth[rest - size] + value > best:
                best, piece = worth[rest - size] + value, size
        worth.append(best)
        first.append(piece)
    return worth, first


def _pattern(first: Sequence[int], rest: int) -> Pattern:
    pieces: list[int] = []
    while rest:
        size = first[rest]
        if size:
            pieces.append(size)
        rest -= size or 1
    return tuple(sorted(pieces))
