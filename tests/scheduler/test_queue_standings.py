"""How queues stand: guarantee, use, borrowed, lent, pending, and what could start now, for each GPU type."""

from gangline.events.control import CordonNode
from gangline.events.policy import Policy, Queue, Quota
from gangline.scheduler.explanation.tree import QueueStanding, TypeStanding, queue_standings
from tests.scheduler.world import World

QUEUES = (
    Queue(path="vision", quotas=(Quota(guarantee_milli=8_000, ceiling_milli=16_000),)),
    Queue(path="vision/cars", quotas=(Quota(guarantee_milli=6_000, ceiling_milli=12_000),)),
    Queue(path="vision/roads"),
    Queue(path="speech", quotas=(Quota(guarantee_milli=16_000),)),
)


def cluster() -> World:
    """Three H100 nodes of 8 GPUs."""
    it = World(Policy(queues=QUEUES))
    for number in range(3):
        it.node(f"n-{number}")
    it.tick()
    return it


def standing(it: World, path: str) -> tuple[QueueStanding, TypeStanding]:
    (found,) = [one for one in queue_standings(it.state) if one.path == path]
    (of_type,) = found.types
    return found, of_type


def test_use_counts_for_the_queues_above_and_what_is_above_the_guarantee_is_borrowed() -> None:
    it = cluster()
    it.runs(queue="vision/cars", gpus=8)
    it.runs(queue="vision/roads", gpus=4)
    _, cars = standing(it, "vision/cars")
    assert (cars.guarantee_milli, cars.use_milli, cars.borrowed_milli) == (6_000, 8_000, 2_000)
    _, vision = standing(it, "vision")
    assert (vision.use_milli, vision.borrowed_milli) == (12_000, 4_000)
    _, roads = standing(it, "vision/roads")
    assert (roads.guarantee_milli, roads.borrowed_milli) == (2_000, 2_000)


def test_what_others_borrow_is_lent_by_who_does_not_use_its_guarantee() -> None:
    it = cluster()
    it.runs(queue="vision/cars", gpus=12)
    it.runs(queue="speech", gpus=2)
    assert standing(it, "speech")[1].lent_milli == 4_000
    assert standing(it, "vision/roads")[1].lent_milli == 2_000
    assert standing(it, "vision")[1].lent_milli == 0


def test_what_waits_is_counted_with_the_gpus_that_it_asks_for() -> None:
    it = cluster()
    it.submit(queue="vision/cars", gpus=4, held=True)
    it.submit(queue="vision/roads", gpu_milli=500, held=True)
    it.tick()
    found, _ = standing(it, "vision")
    assert (found.pending, found.pending_milli) == (2, 4_500)


def test_what_could_start_now_is_free_within_all_ceilings_and_without_borrowing_within_guarantees() -> None:
    it = cluster()
    it.runs(queue="vision/roads", gpus=6)
    it.runs(queue="speech", gpus=2)
    _, cars = standing(it, "vision/cars")
    assert (cars.could_start_milli, cars.could_start_fixed_milli) == (10_000, 6_000)
    _, speech = standing(it, "speech")
    assert (speech.could_start_milli, speech.could_start_fixed_milli) == (16_000, 16_000)


def test_what_is_free_on_a_cordoned_node_cannot_start_anything() -> None:
    it = cluster()
    for node_id in ("n-0", "n-1"):
        it.command(CordonNode, node_id=node_id, reason="")
    it.tick()
    assert standing(it, "speech")[1].could_start_milli == 8_000
