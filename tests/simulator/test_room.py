"""What would fit is counted by device, node and whole nodes, and a node that is down holds nothing."""

from gangline.events.types import Share
from gangline.simulator.room import Room
from gangline.simulator.work import uniform_nodes


def share(node: int, *gpus: int, gpu_milli: int = 1000) -> Share:
    return Share(
        node_id=f"node-{node}",
        address="",
        gpus=gpus,
        gpu_milli=gpu_milli,
        cpu_milli=0,
        memory_bytes=0,
        first_rank=0,
    )


def test_a_small_job_fits_where_enough_whole_devices_of_one_node_are_free() -> None:
    room = Room(uniform_nodes(2))
    room.take(share(0, 0, 1, 2))
    room.take(share(1, *range(8)))
    assert room.fits(5, 1000)
    assert not room.fits(6, 1000)
    assert room.free_milli == 5_000


def test_a_gang_needs_whole_nodes_and_another_one_for_the_rest() -> None:
    room = Room(uniform_nodes(3))
    assert room.fits(24, 1000)
    assert not room.fits(32, 1000)
    room.take(share(2, 0, 1, 2, 3))
    assert room.fits(20, 1000)
    assert not room.fits(21, 1000)


def test_a_fraction_fits_on_a_device_that_is_partly_free() -> None:
    room = Room(uniform_nodes(1))
    room.take(share(0, *range(1, 8)))
    room.take(share(0, 0, gpu_milli=700))
    assert room.fits(1, 300)
    assert not room.fits(1, 301)
    assert not room.fits(1, 1000)
    room.give_back(share(0, 0, gpu_milli=700))
    assert room.fits(1, 1000)


def test_a_node_that_is_down_has_nothing_free() -> None:
    room = Room(uniform_nodes(2))
    room.take(share(0, 0))
    room.change("node-0", up=False)
    room.change("node-0", up=False)
    assert (room.up_milli, room.free_milli) == (8_000, 8_000)
    room.give_back(share(0, 0))
    room.change("node-0", up=True)
    assert (room.up_milli, room.free_milli) == (16_000, 16_000)
    assert room.fits(16, 1000)
