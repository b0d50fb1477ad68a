"""Brute force on small clusters: whether what was not placed fits, and whether what was placed lies best."""

from collections.abc import Callable, Iterator

from gangline.events.types import Decision
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.scene import Scene

AT_PLACEMENT: tuple[Callable[[Ledger, Decision], Iterator[str]], ...] = ()
BETWEEN_ROUNDS: tuple[Callable[[Scene], Iterator[str]], ...] = ()
