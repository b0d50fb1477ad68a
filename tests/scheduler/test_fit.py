"""The choice among arrays is the one that a plain reading of the rule makes."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gangline.events.decisions import TypePrice, WorthLearnt
from gangline.scheduler.fit import Ask, Choice, Fit
from gangline.scheduler.fleet import Fleet
from gangline.scheduler.state import Node
from gangline.scheduler.worth import UNLEARNT, Seen, arrived, learn
from tests.scheduler.fleets import node


def plain_worth(free_milli: tuple[int, ...], cpu: int, memory: int, worth: WorthLearnt) -> int:
    """Return what a node is worth, as the findings put it."""
    values = [sum(worth.of_free[free // 10] for free in free_milli)]
    if worth.cpu_milli_per_gpu:
        values.append(cpu * 1000 // worth.cpu_milli_per_gpu)
    if worth.memory_bytes_per_gpu:
        values.append(memory * 1000 // worth.memory_bytes_per_gpu)
    return min(values)


def ways(one: Node, ask: Ask) -> Iterator[tuple[int, ...]]:
    """Yield the devices that a node could give."""
    if ask.cpu_milli and one.cpu_free_milli < ask.cpu_milli:
        return
    if ask.memory_bytes and one.memory_free_bytes < ask.memory_bytes:
        return
    enough = [column for column, free in enumerate(one.free_milli) if free >= ask.gpu_milli]
    if ask.gpus == 0:
        yield ()
    elif ask.gpu_milli < 1000:
        yield from ((column,) for column in enough)
    elif len(enough) >= ask.gpus:
        yield tuple(enough[: ask.gpus])


def plain_choice(nodes: list[Node], worth: WorthLearnt, ask: Ask, allowed: list[bool]) -> Choice | None:
    """Return the least of all ways by the key of the findings."""
    prices = {price.gpu_type: price.price for price in worth.prices}
    found: list[tuple[int, tuple[int, ...], int, bool, int, tuple[int, ...]]] = []
    for row, one in enumerate(nodes):
        for columns in ways(one, ask) if allowed[row] else ():
            left = tuple(free - ask.gpu_milli * (column in columns) for column, free in enumerate(one.free_milli))
            cpu, memory = one.cpu_free_milli, one.memory_free_bytes
            before = plain_worth(one.free_milli, cpu, memory, worth)
            after = plain_worth(left, cpu - ask.cpu_milli, memory - ask.memory_bytes, worth)
            cost = before - after + prices.get(one.gpu_type, 0) * ask.gpus * ask.gpu_milli // 1000
            fraction = ask.gpu_milli < 1000 and ask.gpus > 0
            free = 0 if ask.gpus == 0 else one.free_milli[columns[0]] if fraction else one.whole_free
            is_open = ask.gpus > 0 and not fraction and one.whole_free == len(one.gpus)
            found.append((cost // 10, (free,), row, is_open, 0, columns))
    if not found:
        return None
    least = min(found)[:2]
    equal = [way for way in found if way[:2] == least]
    pods = [nodes[row].pod for _, _, row, *_ in equal]
    counted = [(is_open, pods.count(nodes[row].pod) if is_open else 0, row, way) for *_, row, is_open, _, way in equal]
    *_, row, columns = min(counted)
    return Choice(row, columns)


SHARES = st.sampled_from([0, 90, 190, 460, 540, 810, 1000, 1000, 1000])
NODES = st.lists(
    st.builds(
        lambda free, pod, gpu_type, cpu, memory: node(
            "n", *free, pod=pod, gpu_type=gpu_type, cpu=cpu * 1000, memory=memory << 30
        ),
        st.lists(SHARES, max_size=4),
        st.sampled_from(["p", "q"]),
        st.sampled_from(["A", "B"]),
        st.integers(-1, 64),
        st.integers(-1, 64),
    ),
    min_size=1,
    max_size=12,
)
ASKS = st.one_of(
    st.builds(Ask, st.just(1), st.sampled_from([10, 90, 190, 460, 811]), st.integers(0, 9000), st.integers(0, 9 << 30)),
    st.builds(Ask, st.integers(1, 4), st.just(1000), st.integers(0, 9000), st.integers(0, 9 << 30)),
    st.builds(Ask, st.just(0), st.just(0), st.integers(0, 9000), st.integers(0, 9 << 30)),
)


@st.composite
def worths(draw: st.DrawFn) -> WorthLearnt:
    """Return what is learnt of some arrivals."""
    seen = Seen()
    for ask in draw(st.lists(ASKS, max_size=6)):
        types = draw(st.sampled_from([(), ("A",), ("B",)]))
        seen = arrived(
            seen,
            gpus=ask.gpus,
            gpu_milli=ask.gpu_milli,
            cpu_milli=ask.cpu_milli,
            memory_bytes=ask.memory_bytes,
            gpu_types=types,
        )
    return learn(seen, [("A", 3000), ("B", 1000)])


@given(NODES, worths(), ASKS, st.data())
def test_the_choice_is_the_least_of_all_ways(
    nodes: list[Node], worth: WorthLearnt, ask: Ask, data: st.DataObject
) -> None:
    flags = st.lists(st.sampled_from([True, True, True, False]), min_size=len(nodes), max_size=len(nodes))
    allowed, blocked = data.draw(flags), [not open_ for open_ in data.draw(flags)]
    fleet = Fleet(nodes)
    for row, is_blocked in enumerate(blocked):
        fleet.set_blocked(row, blocked=is_blocked)
    both = [may and not is_blocked for may, is_blocked in zip(allowed, blocked, strict=True)]
    assert Fit(fleet, worth).choose(ask, np.array(allowed, np.bool_)) == plain_choice(nodes, worth, ask, both)


@given(NODES, worths(), st.lists(ASKS, min_size=1, max_size=8))
def test_a_fleet_that_fills_up_is_as_one_built_anew(nodes: list[Node], worth: WorthLearnt, asks: list[Ask]) -> None:
    fleet = Fleet(nodes)
    fit = Fit(fleet, worth)
    for ask in asks:
        choice = fit.choose(ask)
        assert choice == plain_choice(nodes, worth, ask, [True] * len(nodes))
        if choice is None:
            continue
        fleet.take(choice.row, choice.columns, ask.gpu_milli, ask.cpu_milli, ask.memory_bytes)
        old = nodes[choice.row]
        left = [free - ask.gpu_milli * (column in choice.columns) for column, free in enumerate(old.free_milli)]
        nodes[choice.row] = node(
            "n",
            *left,
            pod=old.pod,
            gpu_type=old.gpu_type,
            cpu=old.cpu_free_milli - ask.cpu_milli,
            memory=old.memory_free_bytes - ask.memory_bytes,
        )


FULL, OPEN = (0, 0, 0, 0), (1000, 1000, 1000, 1000)
BEST_FIT: dict[str, tuple[list[Node], int, Choice | None]] = {
    "the fewest free GPUs that suffice": ([node("a", *OPEN), node("b", 0, 1000, 1000, 0)], 2, Choice(1, (1, 2))),
    "not the fewest where they do not": ([node("a", *OPEN), node("b", 0, 1000, 1000, 0)], 3, Choice(0, (0, 1, 2))),
    "the first of equals": ([node("a", *FULL), node("b", *OPEN), node("c", *OPEN)], 4, Choice(1, (0, 1, 2, 3))),
    "the fullest pod": (
        [node("a", *OPEN, pod="p"), node("b", *OPEN, pod="p"), node("c", *OPEN, pod="q")],
        1,
        Choice(2, (0,)),
    ),
    "nothing": ([node("a", *FULL), node("b", 999, 999)], 1, None),
}


@pytest.mark.parametrize("name", BEST_FIT)
def test_without_cpu_and_types_whole_gpus_are_a_plain_best_fit(name: str) -> None:
    nodes, gpus, expected = BEST_FIT[name]
    for worth in (UNLEARNT, learn(arrived(Seen(), gpus=8, gpu_milli=1000, cpu_milli=0, memory_bytes=0), [("A", 1)])):
        assert Fit(Fleet(nodes), worth).choose(Ask(gpus, 1000)) == expected


def test_a_fraction_spares_the_hole_that_a_coming_one_fits() -> None:
    seen = Seen()
    for milli in (300, 300, 300, 700):
        seen = arrived(seen, gpus=1, gpu_milli=milli, cpu_milli=0, memory_bytes=0)
    fleet = Fleet([node("a", 350, 500), node("b", 420, 1000)])
    fit = Fit(fleet, learn(seen, [("A", 1)]))
    assert fit.choose(Ask(1, 100)) == Choice(1, (0,)), "the fullest device of those that lose nothing"
    assert fit.choose(Ask(1, 300)) == Choice(0, (0,)), "all lose as much, so the fullest"


def test_a_job_without_gpus_goes_where_gpus_cannot_use_the_cpu() -> None:
    worth = replace(UNLEARNT, cpu_milli_per_gpu=10_000)
    fleet = Fleet([node("a", 1000, cpu=10_000), node("b", 0, cpu=10_000), node("c", 0, cpu=10_000)])
    assert Fit(fleet, worth).choose(Ask(0, 0, cpu_milli=4_000)) == Choice(1, ())


def test_a_scarce_type_is_kept_for_those_who_need_it() -> None:
    fleet = Fleet([node("a", 1000, gpu_type="A"), node("b", 1000, 1000, gpu_type="B")])
    fit = Fit(fleet, UNLEARNT)
    assert fit.choose(Ask(1, 1000)) == Choice(0, (0,))
    fit.learn(replace(UNLEARNT, prices=(TypePrice(gpu_type="A", price=50),)))
    assert fit.choose(Ask(1, 1000)) == Choice(1, (0,))
    assert fit.choose(Ask(1, 1000), fleet.types_mask(("A",))) == Choice(0, (0,)), "nothing that fits is held back"


def test_an_empty_fleet_holds_nothing() -> None:
    fit = Fit(Fleet([]), UNLEARNT)
    assert [fit.choose(ask) for ask in (Ask(0, 0), Ask(1, 1000), Ask(1, 10))] == [None] * 3
