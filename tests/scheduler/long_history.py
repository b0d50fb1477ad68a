"""Walks one long history and prints digests of its rounds and states: `python -m tests.scheduler.long_history`."""

import hashlib
import sys

from gangline.scheduler.canonical import to_bytes
from tests.scheduler.steps import Lcg, walk
from tests.scheduler.world import World

STEPS = 3_000
SEED = 42


def main() -> None:
    """Print SHA-256 digests: of all rounds, of all states just after one, of the last state."""
    world = World(keep_states=True)
    walk(world, Lcg(SEED), STEPS)
    rounds, states = hashlib.sha256(), hashlib.sha256()
    for record in world.control:
        if record.round is not None and record.state is not None:
            rounds.update(record.round)
            states.update(record.state)
    last = hashlib.sha256(to_bytes(world.state))
    sys.stdout.write(f"{rounds.hexdigest()} {states.hexdigest()} {last.hexdigest()} {len(world.control)}\n")


if __name__ == "__main__":
    main()
