"""The search for victims of a claimant that needs several nodes, against every set of victims on small clusters."""

import numpy as np
import pytest

from gangline.scheduler.room.gangs import on_several_nodes
from tests.scheduler.room.bench import Bench, Run, random_bench


def ready(bench: Bench, victims: tuple[int, ...], each: int) -> int:
    return int(np.count_nonzero(bench.fleet_without(victims).whole_free >= each))


@pytest.mark.parametrize("seed", range(150))
def test_a_gang_gets_its_nodes_if_it_could_and_nobody_goes_without_whom_it_would_do(seed: int) -> None:
    bench = random_bench(seed, gangs=True)
    for count in range(1, len(bench.sizes) + 1):
        for each in range(1, min(bench.sizes) + 1):
            victims = on_several_nodes(bench.field, bench.spans(), count, each)
            everybody = tuple(row for row, run in enumerate(bench.list) if run.eligible)
            if ready(bench, everybody, each) < count:
                assert victims is None
                continue
            assert victims is not None
            assert all(bench.list[row].eligible for row in victims)
            assert ready(bench, victims, each) >= count
            for row in victims:
                assert ready(bench, tuple(other for other in victims if other != row), each) < count


def test_the_cheapest_nodes_of_small_jobs_go_if_they_are_fewer_devices_than_a_gang() -> None:
    small = [Run(((node, 0),), lost=lost) for node, lost in ((0, 9), (1, 1), (2, 5))]
    gang = Run(tuple((node, column) for node in (3, 4) for column in (0, 1)), lost=0)
    assert chosen(Bench([2] * 5, [*small, gang]), 2) == (1, 2)


def test_a_gang_goes_if_it_covers_the_need_with_fewer_devices_than_small_jobs_would() -> None:
    small = [Run(((node, 0), (node, 1))) for node in range(3)]
    gangs = [
        Run(tuple((node, 0) for node in (3, 4, 5)), lost=9),
        Run(tuple((node, column) for node in (6, 7, 8, 9) for column in (0, 1)), lost=9),
    ]
    assert chosen(Bench([2] * 10, [*small, *gangs]), 3) == (3,)


def test_small_jobs_go_where_a_gang_would_free_no_fewer_devices_than_they() -> None:
    small = [Run(((node, 0), (node, 1)), lost=9) for node in range(3)]
    gang = Run(tuple((node, column) for node in (3, 4, 5) for column in (0, 1)), lost=0)
    assert chosen(Bench([2] * 6, [*small, gang]), 3) == (0, 1, 2)


def test_where_no_gang_is_large_enough_the_largest_goes_and_small_jobs_for_the_rest() -> None:
    small = [Run(((node, 0), (node, 1)), lost=node) for node in range(2)]
    gangs = [Run(tuple((node, column) for node in nodes for column in (0, 1))) for nodes in ((2, 3), (4, 5, 6))]
    assert chosen(Bench([2] * 7, [*small, *gangs]), 4) == (0, 3)


def chosen(bench: Bench, count: int) -> tuple[int, ...] | None:
    return on_several_nodes(bench.field, bench.spans(), count, 2)
