"""The search for victims on one node, against every set of victims on small clusters."""

import numpy as np
import pytest

from gangline.scheduler.fit import Ask, Fit
from gangline.scheduler.room.search import on_one_node
from gangline.scheduler.worth import UNLEARNT
from tests.scheduler.room.bench import Bench, Run, random_bench

ASKS = (Ask(1, 1000), Ask(2, 1000), Ask(3, 1000), Ask(4, 1000), Ask(1, 300), Ask(1, 700))
FED = (Ask(1, 1000, 6_000), Ask(2, 1000, 12_000), Ask(1, 300, 9_000), Ask(0, 0, 14_000))


def fits(bench: Bench, ask: Ask, victims: tuple[int, ...], node: int | None = None) -> bool:
    """Whether the claimant is placed once the victims are gone, by the code that places in earnest."""
    allowed = None if node is None else np.arange(len(bench.sizes)) == node
    return Fit(bench.fleet_without(victims), UNLEARNT).choose(ask, allowed) is not None


def best_cost(bench: Bench, ask: Ask) -> int | None:
    costs = [bench.cost(victims) for victims in bench.eligible_sets() if fits(bench, ask, victims)]
    return min(costs, default=None)


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("seed", range(40))
def test_those_who_lose_least_go_and_nobody_if_the_claimant_would_not_fit(seed: int, ask: Ask) -> None:
    bench = random_bench(seed)
    found = on_one_node(bench.field, ask)
    best = best_cost(bench, ask)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert all(bench.list[row].eligible for row in found.victims)
    assert fits(bench, ask, found.victims, found.node)
    assert bench.cost(found.victims) == found.cost == best


@pytest.mark.parametrize("ask", FED)
@pytest.mark.parametrize("seed", range(40))
def test_with_cpu_asked_for_the_claimant_fits_if_it_can_and_no_victim_could_stay(seed: int, ask: Ask) -> None:
    bench = random_bench(seed)
    found = on_one_node(bench.field, ask)
    if best_cost(bench, ask) is None:
        assert found is None
        return
    assert found is not None
    assert all(bench.list[row].eligible for row in found.victims)
    assert fits(bench, ask, found.victims, found.node)
    for row in found.victims:
        assert not fits(bench, ask, tuple(other for other in found.victims if other != row), found.node)


def test_of_equal_losses_the_fewest_jobs_go() -> None:
    runs = [Run(((0, 0),)), Run(((0, 1),)), Run(((1, 0), (1, 1)))]
    found = on_one_node(Bench([2, 2], runs).field, Ask(2, 1000))
    assert found is not None
    assert (found.node, found.victims) == (1, (2,))


def test_all_fractions_of_a_device_go_together_or_none_does() -> None:
    runs = [Run(((0, 0),), 500, 1), Run(((0, 0),), 500, 1, eligible=False), Run(((0, 1),), 300, 5)]
    found = on_one_node(Bench([2], runs).field, Ask(1, 1000))
    assert found is not None
    assert found.victims == (2,)


def test_who_takes_a_part_of_a_device_that_others_keep_goes_for_the_cpu_that_is_asked_for() -> None:
    runs = [Run(((0, 0),), 500, cpu_milli=6_000), Run(((0, 0),), 500, eligible=False), Run(((0, 1),), cpu_milli=6_000)]
    found = on_one_node(Bench([2], runs).field, Ask(1, 1000, 12_000))
    assert found is not None
    assert found.victims == (0, 2)
