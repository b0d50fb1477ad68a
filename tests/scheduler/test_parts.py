"""What fits on some of the nodes fits on all: a search that failed without a bar need not be made with one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.scheduler.fit import Fit
from gangline.scheduler.fleet import Fleet
from gangline.scheduler.parts import place_gpus
from gangline.scheduler.shapes import Shape
from gangline.scheduler.worth import UNLEARNT
from tests.scheduler.fleets import node


def shape(gpus: int, **changes: object) -> Shape:
    fields: dict[str, object] = {"gpu_milli": 1000, "nodes": None, "gpu_types": (), "cpu_milli": 0, "memory_bytes": 0}
    fields |= {"required": "none", "preferred": "none", "roles": ()}
    return Shape(**{"gpus": gpus, **fields, **changes})  # type: ignore[arg-type] # the fields are those of Shape


def fit(*sizes: int, full: tuple[int, ...] = (), types: str = "") -> Fit:
    nodes = [
        node(f"n-{row}", *[0 if row in full else 1000] * size, pod=f"p{row % 2}", gpu_type=types[row : row + 1] or "A")
        for row, size in enumerate(sizes)
    ]
    return Fit(Fleet(nodes), UNLEARNT)


def test_a_gang_that_a_node_would_hold_waits_for_it_though_that_one_is_barred_just_now() -> None:
    three = shape(3)
    fleet = fit(4, 2, 2, full=(0,))
    assert place_gpus(fleet, three) == []
    assert place_gpus(fleet, three, np.array([False, True, True])) == []
    assert place_gpus(fit(2, 2), three) == [(0, (0, 1)), (1, (0,))]


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    full=st.sets(st.integers(0, 5)),
    types=st.text("AB", min_size=6, max_size=6),
    barred=st.sets(st.integers(0, 5)),
    gpus=st.integers(1, 9),
    required=st.sampled_from(["none", "pod", "node"]),
    only=st.sampled_from([(), ("A",), ("B",)]),
)
def test_what_fits_on_some_nodes_fits_on_all(  # noqa: PLR0917 - drawn by name
    sizes: list[int], full: set[int], types: str, barred: set[int], gpus: int, required: str, only: tuple[str, ...]
) -> None:
    fleet = fit(*sizes, full=tuple(full), types=types)
    asked = shape(gpus, required=required, gpu_types=only)
    allowed = np.array([row not in barred for row in range(len(sizes))])
    if place_gpus(fleet, asked, allowed):
        assert place_gpus(fleet, asked)
