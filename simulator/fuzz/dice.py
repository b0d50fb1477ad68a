"""Random integers that are the same in every version of Python: drawn in order, or found for a key."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1


class Dice:
    """Draws integers in order (Steele, Lea and Flood: SplitMix64)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, count: int) -> int:
        """Return one of 0 ... count - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        return (z ^ (z >> 31)) % count

    def between(self, least: int, most: int) -> int:
        """Return one of least ... most."""
        return least + self.below(most - least + 1)

    def percent(self, chance: int) -> bool:
        """Return true this often in a hundred."""
        return self.below(100) < chance

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.below(len(options))]

    def some(self, options: Sequence[T], chance: int) -> list[T]:
        """Return each option with this chance in a hundred, in their order."""
        return [option for option in options if self.percent(chance)]


def keyed(seed: int, *key: object) -> int:
    """Return a number of 64 bits for a key: the same whatever else was drawn, so that a shrunk case keeps it."""
    text = "/".join(str(part) for part in (seed, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
