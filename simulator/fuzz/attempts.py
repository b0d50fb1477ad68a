"""One seed after the other, in whatever process."""

from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.scene import Violation
from gangline.simulator.fuzz.world import Ran, run


def attempt(seed: int) -> tuple[int, Ran | str]:
    """Run the world of a seed; return what it came to, or what did not hold."""
    try:
        return seed, run(generate(seed))
    except Violation as violation:
        return seed, str(violation)
