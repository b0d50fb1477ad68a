"""The fleet's arrays say what its nodes say, whichever way they were brought there."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.scheduler.fleet import Fleet
from tests.scheduler.fleets import node


def shown(fleet: Fleet) -> dict[str, Any]:
    """Return all that a fleet holds, as plain lists."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in sorted(vars(fleet).items())
    }


NODES = st.lists(
    st.builds(
        lambda free, pod, gpu_type, cpu, memory: (tuple(free), pod, gpu_type, cpu, memory),
        st.lists(st.sampled_from([0, 1, 250, 999, 1000]), max_size=4),
        st.sampled_from(["pod-2", "pod-10"]),
        st.sampled_from(["a", "b"]),
        st.integers(-5, 1 << 40),
        st.integers(-5, 1 << 50),
    ),
    max_size=6,
)
WORTH = [0, *range(3, 303, 3)]


def test_pods_are_in_natural_order_and_types_sorted() -> None:
    fleet = Fleet([node("n-1", 1000, pod="pod-10", gpu_type="b"), node("n-2", 1000, pod="pod-2", gpu_type="a")])
    assert (fleet.pods, fleet.types) == (("pod-2", "pod-10"), ("a", "b"))
    assert (fleet.pod_index.tolist(), fleet.type_index.tolist()) == ([1, 0], [1, 0])


def test_a_device_that_a_node_does_not_have_is_not_free() -> None:
    fleet = Fleet([node("n-1", 1000), node("n-2", 400, 1000, 1000)])
    assert fleet.free.tolist() == [[1000, 0, 0], [400, 1000, 1000]]
    assert (fleet.devices.tolist(), fleet.whole_free.tolist()) == ([1, 3], [1, 2])


@given(NODES, NODES)
def test_a_row_set_anew_is_as_if_built_so(
    before: list[tuple[tuple[int, ...], str, str, int, int]], after: list[tuple[tuple[int, ...], str, str, int, int]]
) -> None:
    pairs = list(zip(before, after, strict=False))
    old = [node(f"n-{i}", *b[0], pod=b[1], gpu_type=b[2], cpu=b[3], memory=b[4]) for i, (b, _) in enumerate(pairs)]
    new = [
        node(f"n-{i}", *a[0][: len(b[0])], pod=b[1], gpu_type=b[2], cpu=a[3], memory=a[4])
        for i, (b, a) in enumerate(pairs)
    ]
    widest = max((len(one.gpus) for one in old), default=0)
    wide = node("n-last", *[0] * widest)
    kept, built = Fleet([*old, wide]), Fleet([*new, wide])
    for fleet in (kept, built):
        fleet.set_worth(WORTH)
    for row, one in enumerate(new):
        kept.set_node(row, one)
    assert shown(kept) == shown(built)


def test_what_is_taken_and_given_back_leaves_no_trace() -> None:
    fleet = Fleet([node("n-1", 1000, 1000), node("n-2", 700, 1000, 300, cpu=8, memory=64)])
    before = shown(fleet)
    fleet.take(1, (1,), 300, 5, 40)
    assert (fleet.free[1].tolist(), fleet.whole_free[1], fleet.gpu_worth[1]) == ([700, 700, 300], 0, 1700)
    assert (fleet.cpu_free[1], fleet.memory_free[1]) == (3, 24)
    fleet.take(1, (1,), -300, -5, -40)
    assert shown(fleet) == before


def test_a_copy_may_change_and_the_fleet_does_not() -> None:
    fleet = Fleet([node("n-1", 1000, 1000)])
    before = shown(fleet)
    other = fleet.copy()
    other.take(0, (0, 1), 1000, 1, 1)
    other.set_blocked(0, blocked=True)
    other.set_worth(WORTH)
    assert shown(fleet) == before
    assert shown(other) != before


def test_worth_goes_by_hundredths_of_a_device_rounded_down() -> None:
    fleet = Fleet([node("n-1", 1000, 999), node("n-2", 9, 10)])
    assert fleet.gpu_worth.tolist() == [1999, 19], "before anything was learnt, a free thousandth is worth one"
    fleet.set_worth(WORTH)
    assert fleet.gpu_worth.tolist() == [300 + 297, 0 + 3]


@pytest.mark.parametrize(
    ("types", "expected"),
    [((), None), (("a",), [True, False]), (("a", "b"), [True, True]), (("c",), [False, False])],
)
def test_nodes_are_told_by_type(types: tuple[str, ...], expected: list[bool] | None) -> None:
    mask = Fleet([node("n-1", 1, gpu_type="a"), node("n-2", 1, gpu_type="b")]).types_mask(types)
    assert (None if mask is None else mask.tolist()) == expected


def test_no_memory_is_too_large_to_reckon_with() -> None:
    fleet = Fleet([node("n-1", 1000, cpu=1 << 62, memory=1 << 62), node("n-2", 1000, cpu=-(1 << 62))])
    assert (fleet.cpu_free * 1000).tolist() == [1000 << 52, -(1000 << 52)]
    assert fleet.memory_free[0] * 1000 == 1000 << 52


def test_an_empty_fleet_is_a_fleet() -> None:
    fleet = Fleet([])
    fleet.set_worth(WORTH)
    assert (fleet.size, fleet.widest, fleet.gpu_worth.tolist()) == (0, 0, [])
