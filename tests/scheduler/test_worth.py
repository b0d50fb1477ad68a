"""What is learnt from arrivals: what holes are worth, what types cost, and when to look again."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gangline.events.decisions import TypePrice
from gangline.scheduler.worth import LINEAR, MAX_PRICE, MAX_TYPE_SETS, UNLEARNT, Seen, arrived, is_due, learn, learnt

GIB = 1 << 30
FREE = [("A", 6_000), ("B", 2_000), ("C", 2_000)]


def gpus(seen: Seen, count: int, milli: int = 1000, *types: str, cpu: int = 0, memory: int = 0) -> Seen:
    return arrived(seen, gpus=count, gpu_milli=milli, cpu_milli=cpu, memory_bytes=memory, gpu_types=types)


def priced(**prices: int) -> tuple[TypePrice, ...]:
    return tuple(TypePrice(gpu_type=name, price=price) for name, price in prices.items())


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.integers(1, 1000),
        st.sampled_from([(), ("A",), ("B", "A"), ("A", "B"), ("C",)]),
        st.integers(0, 100_000),
    ),
    max_size=20,
)


def fed(arrivals: list[tuple[int, int, tuple[str, ...], int]]) -> Seen:
    seen = Seen()
    for count, milli, types, cpu in arrivals:
        seen = gpus(seen, count, milli if count == 1 else 1000, *types, cpu=cpu, memory=cpu * GIB)
    return seen


def test_before_anything_arrived_a_hole_is_worth_its_size() -> None:
    assert learn(Seen(), FREE) == UNLEARNT
    assert UNLEARNT.of_free == LINEAR == tuple(range(0, 1001, 10))


def test_a_hole_too_small_for_what_arrives_is_worth_nothing() -> None:
    seen = gpus(gpus(Seen(), 1, 460), 1, 455)
    of_free = learn(seen, FREE).of_free
    assert (of_free[45], of_free[46], of_free[91], of_free[92]) == (0, 500, 500, 1000)


def test_a_gang_counts_every_gpu() -> None:
    eight, ones = gpus(Seen(), 8), Seen()
    for _ in range(8):
        ones = gpus(ones, 1)
    assert eight.sizes == ones.sizes


def test_worth_is_in_thousandths_truncated() -> None:
    of_free = learn(gpus(Seen(), 1, 300), FREE).of_free
    assert (of_free[29], of_free[30], of_free[60], of_free[90], of_free[100]) == (0, 333, 666, 1000, 1000)


@given(ARRIVALS)
def test_worth_rises_from_nothing_to_a_whole_device(arrivals: list[tuple[int, int, tuple[str, ...], int]]) -> None:
    of_free = learn(fed(arrivals), FREE).of_free
    assert len(of_free) == 101
    assert (of_free[0], of_free[100]) == (0, 1000)
    assert list(of_free) == sorted(of_free)


@given(ARRIVALS, st.randoms(use_true_random=False))
def test_the_order_of_arrivals_does_not_matter(
    arrivals: list[tuple[int, int, tuple[str, ...], int]], chance: random.Random
) -> None:
    shuffled = arrivals.copy()
    chance.shuffle(shuffled)
    assert fed(arrivals) == fed(shuffled)
    assert learn(fed(arrivals), FREE) == learn(fed(shuffled), FREE[::-1])


def test_cpu_and_memory_are_what_jobs_with_gpus_ask_less_a_tenth() -> None:
    seen = gpus(Seen(), 2, cpu=20_000, memory=64 * GIB)
    seen = gpus(seen, 1, 500, cpu=3_000, memory=8 * GIB)
    seen = gpus(seen, 0, cpu=500_000, memory=500 * GIB)
    worth = learn(seen, FREE)
    assert worth.cpu_milli_per_gpu == 9 * 23_000 * 1000 // (10 * 2_500)
    assert worth.memory_bytes_per_gpu == 9 * 72 * GIB * 1000 // (10 * 2_500)


def test_jobs_without_gpus_bound_nothing() -> None:
    worth = learn(gpus(Seen(), 0, cpu=500_000, memory=500 * GIB), FREE)
    assert worth == replace(UNLEARNT, arrivals=1)


def test_a_type_costs_its_share_of_demand_over_its_share_of_what_is_free() -> None:
    seen = gpus(Seen(), 2, 1000, "B", "C")
    seen = gpus(seen, 1, 1000, "C")
    seen = gpus(seen, 5, 1000)
    # Of 8,000 asked, 2,000 want B or C, 4,000 of 10,000 free; 1,000 want C, 2,000 of 10,000 free.
    assert learn(seen, FREE).prices == priced(B=625, C=625 + 625)


def test_whoever_accepts_any_type_adds_to_no_price() -> None:
    assert learn(gpus(Seen(), 5), FREE).prices == ()


def test_a_type_that_is_used_up_or_gone_has_no_price() -> None:
    seen = gpus(gpus(Seen(), 1, 1000, "B"), 1, 1000, "Z")
    assert learn(seen, [("A", 10), ("B", 0)]).prices == ()


def test_a_price_has_a_bound() -> None:
    seen = gpus(Seen(), 1, 1000, "B")
    assert learn(seen, [("A", 10**9), ("B", 1)]).prices == priced(B=MAX_PRICE)


def test_further_sets_of_types_count_as_any() -> None:
    seen = Seen()
    for number in range(MAX_TYPE_SETS + 5):
        seen = gpus(seen, 1, 1000, f"type-{number}")
    seen = gpus(seen, 1, 1000, "type-3")
    assert len(seen.by_types) == MAX_TYPE_SETS
    assert dict(seen.by_types)["type-3",] == 2000
    assert seen.gpu_milli == (MAX_TYPE_SETS + 6) * 1000


def test_it_learns_after_1_2_4_8_arrivals_and_then_every_so_many() -> None:
    seen, when = Seen(), []
    for number in range(1, 70):
        seen = gpus(seen, 1, 300)
        if is_due(seen, 16):
            seen = learnt(seen, learn(seen, FREE), 1_000_000)
            when.append(number)
    assert when == [1, 2, 4, 8, 16, 32, 48, 64]


def test_it_is_due_at_the_next_round_if_many_arrive_at_once() -> None:
    seen = Seen(arrivals=300, worth=replace(UNLEARNT, arrivals=5))
    assert is_due(seen, 256)
    assert not is_due(replace(seen, worth=replace(UNLEARNT, arrivals=300)), 256)


def test_nothing_is_due_before_the_first_arrival() -> None:
    assert not is_due(Seen(), 256)


def test_what_is_kept_of_old_arrivals_is_a_part_of_every_sum() -> None:
    seen = gpus(Seen(), 2, 1000, "A", "B", cpu=10, memory=100)
    after = learnt(seen, replace(UNLEARNT, arrivals=1), 500_000)
    assert after.worth == replace(UNLEARNT, arrivals=1)
    assert (after.sizes[100], after.by_types, after.gpu_milli) == (1_000, ((("A", "B"), 1_000),), 1_000)
    assert (after.cpu_milli, after.memory_bytes, after.arrivals) == (5, 50, 1)


def test_what_came_long_ago_is_forgotten() -> None:
    seen = gpus(Seen(), 1, 300, "A")
    for _ in range(40):
        seen = learnt(seen, replace(UNLEARNT, arrivals=1), 500_000)
    assert (sum(seen.sizes), seen.by_types) == (0, ())
    assert learn(seen, FREE).of_free == LINEAR


@pytest.mark.parametrize("times", [1, 3])
def test_learning_again_from_the_last_basis_changes_nothing(times: int) -> None:
    seen = Seen()
    for milli in (460, 230, 810, 320, 1000, 550):
        seen = gpus(seen, 1, milli)
    first = learn(seen, FREE)
    again = first
    for _ in range(times):
        again = learn(learnt(seen, again, 1_000_000), FREE)
    assert again == first


def test_what_was_seen_survives_its_bytes() -> None:
    seen = gpus(gpus(Seen(), 1, 460, "A"), 0)
    seen = learnt(seen, learn(seen, FREE), 1_000_000)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(seen), type=Seen) == seen
