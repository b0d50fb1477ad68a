"""Randomised worlds: after every round of each, everything holds that has to."""

import pytest

from gangline.simulator.fuzz.attempts import attempt

CHUNKS = 10
SEEDS = 500


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_invariant_holds_in_randomised_worlds(chunk: int) -> None:
    found = [attempt(seed) for seed in range(chunk, SEEDS, CHUNKS)]
    failed = [f"seed {seed}: {ran}" for seed, ran in found if isinstance(ran, str)]
    assert not failed, "\n".join([*failed, "python -m gangline.simulator.fuzz --seeds 1 --seed N shrinks one"])
