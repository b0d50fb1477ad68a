"""Where gangs go: all or nothing, best fit, whole nodes and pods kept free, ties to the lowest id."""

from typing import Any, NamedTuple

import pytest

from gangline.scheduler.order import natural
from tests.scheduler.world import GIB, World

Nodes = dict[str, dict[str, Any]]
EIGHT: dict[str, Any] = {"gpus": 8}


class Case(NamedTuple):
    """Nodes, jobs that run already, one more, and where its ranks go (None: it waits)."""

    nodes: Nodes
    running: list[dict[str, Any]]
    job: dict[str, Any]
    expected: list[tuple[str, tuple[int, ...]]] | None


def on(node_id: str, *gpus: int) -> tuple[str, tuple[int, ...]]:
    return node_id, gpus


ALL = tuple(range(8))
TWO: Nodes = {"n-1": EIGHT, "n-2": EIGHT}
PODS: Nodes = {
    "n-1": {"gpus": 8, "pod": "a"},
    "n-2": {"gpus": 8, "pod": "a"},
    "n-3": {"gpus": 8, "pod": "a"},
    "n-4": {"gpus": 8, "pod": "b"},
    "n-5": {"gpus": 8, "pod": "b"},
}

CASES: dict[str, Case] = {
    "a gang takes the lowest devices of the lowest node": Case(TWO, [], {"gpus": 2}, [on("n-1", 0, 1)]),
    "a gang that does not fit takes nothing": Case(TWO, [{"gpus": 1}, {"gpus": 8}], {"gpus": 8}, None),
    "a small gang goes to the partly used node": Case(TWO, [{"gpus": 2}], {"gpus": 2}, [on("n-1", 2, 3)]),
    "of partly used nodes the fullest that holds it": Case(
        TWO, [{"gpus": 5}, {"gpus": 6}], {"gpus": 2}, [on("n-2", 6, 7)]
    ),
    "a gang leaves the fullest node if it does not hold it": Case(
        TWO, [{"gpus": 5}, {"gpus": 6}], {"gpus": 3}, [on("n-1", 5, 6, 7)]
    ),
    "node-2 comes before node-10": Case({"node-10": EIGHT, "node-2": EIGHT}, [], {"gpus": 1}, [on("node-2", 0)]),
    "a fraction takes the lowest device": Case(TWO, [], {"gpu_milli": 100}, [on("n-1", 0)]),
    "a fraction joins the fullest device that holds it": Case(
        TWO, [{"gpu_milli": 500}, {"gpu_milli": 700}], {"gpu_milli": 300}, [on("n-1", 1)]
    ),
    "a fraction leaves the fullest device if it does not hold it": Case(
        TWO, [{"gpu_milli": 500}, {"gpu_milli": 700}], {"gpu_milli": 400}, [on("n-1", 0)]
    ),
    "a fraction opens a device on a partly used node": Case(
        TWO, [{"gpu_milli": 600}, {"gpus": 7}], {"gpu_milli": 500}, [on("n-2", 0)]
    ),
    "a whole GPU does not go where a fraction runs": Case({"n-1": {"gpus": 1}}, [{"gpu_milli": 1}], {"gpus": 1}, None),
    "two whole nodes": Case(TWO, [], {"gpus": 16}, [on("n-1", *ALL), on("n-2", *ALL)]),
    "whole nodes must be wholly free": Case(TWO, [{"gpu_milli": 1}], {"gpus": 16}, None),
    "whole nodes come from the fullest pod that holds them": Case(
        PODS, [], {"gpus": 16}, [on("n-4", *ALL), on("n-5", *ALL)]
    ),
    "a whole node comes from the fullest pod": Case(PODS, [], {"gpus": 8}, [on("n-4", *ALL)]),
    "a small gang opens a node in the fullest pod": Case(PODS, [], {"gpus": 1}, [on("n-4", 0)]),
    "whole nodes come from the pod that holds them all": Case(
        PODS, [], {"gpus": 24}, [on("n-1", *ALL), on("n-2", *ALL), on("n-3", *ALL)]
    ),
    "whole nodes come from the fewest pods": Case(
        {**PODS, "n-6": {"gpus": 8, "pod": "c"}},
        [],
        {"gpus": 32},
        [on("n-1", *ALL), on("n-2", *ALL), on("n-3", *ALL), on("n-6", *ALL)],
    ),
    "ranks go pod by pod": Case(
        {
            "n-1": {"gpus": 8, "pod": "b"},
            "n-2": {"gpus": 8, "pod": "a"},
            "n-3": {"gpus": 8, "pod": "b"},
            "n-4": {"gpus": 8, "pod": "a"},
        },
        [],
        {"gpus": 32},
        [on("n-2", *ALL), on("n-4", *ALL), on("n-1", *ALL), on("n-3", *ALL)],
    ),
    "a remainder comes last, on the lowest other node that holds it": Case(
        {"n-1": EIGHT, "n-2": EIGHT, "n-3": EIGHT},
        [{"gpus": 6}],
        {"gpus": 10},
        [on("n-2", *ALL), on("n-1", 6, 7)],
    ),
    "a remainder stays in the pod of the whole nodes": Case(
        PODS, [{"gpus": 1, "gpu_types": ("H100",)}], {"gpus": 10}, [on("n-5", *ALL), on("n-4", 1, 2)]
    ),
    "a remainder that fits nowhere keeps the gang whole": Case(TWO, [{"gpus": 7}], {"gpus": 10}, None),
    "a spread gang takes as many of each node": Case(
        TWO, [], {"gpus": 4, "nodes": 2}, [on("n-1", 0, 1), on("n-2", 0, 1)]
    ),
    "a spread gang waits for nodes enough": Case(TWO, [{"gpus": 8}], {"gpus": 4, "nodes": 2}, None),
    "a gang on one node is packed like a small one": Case(
        TWO, [{"gpus": 2}], {"gpus": 2, "nodes": 1}, [on("n-1", 2, 3)]
    ),
    "a gang prefers the larger node if it is partly used": Case(
        {"n-1": {"gpus": 4}, "n-2": EIGHT}, [{"gpus": 5}], {"gpus": 1}, [on("n-2", 5)]
    ),
    "a gang opens the smallest node that holds it": Case(
        {"n-1": EIGHT, "n-2": {"gpus": 4}}, [], {"gpus": 4}, [on("n-2", 0, 1, 2, 3)]
    ),
    "a large gang takes the larger nodes whole": Case(
        {"n-1": {"gpus": 4}, "n-2": EIGHT, "n-3": EIGHT},
        [],
        {"gpus": 20},
        [on("n-2", *ALL), on("n-3", *ALL), on("n-1", 0, 1, 2, 3)],
    ),
    "a large gang takes smaller nodes if the larger do not do": Case(
        {"n-1": {"gpus": 4}, "n-2": {"gpus": 4}, "n-3": {"gpus": 4}, "n-4": EIGHT},
        [{"gpus": 5}],
        {"gpus": 12},
        [on("n-1", 0, 1, 2, 3), on("n-2", 0, 1, 2, 3), on("n-3", 0, 1, 2, 3)],
    ),
    "a type is respected": Case(
        {"n-1": {"gpus": 8, "gpu_type": "A100"}, "n-2": EIGHT}, [], {"gpus": 1, "gpu_types": ("H100",)}, [on("n-2", 0)]
    ),
    "several types will do": Case(
        {"n-1": {"gpus": 8, "gpu_type": "A100"}, "n-2": EIGHT},
        [{"gpus": 8, "gpu_types": ("A100",)}],
        {"gpus": 1, "gpu_types": ("A100", "H100")},
        [on("n-2", 0)],
    ),
    "a gang never mixes types": Case(
        {"n-1": {"gpus": 8, "gpu_type": "A100"}, "n-2": EIGHT, "n-3": EIGHT},
        [{"gpus": 8, "gpu_types": ("H100",)}],
        {"gpus": 16},
        None,
    ),
    "CPU is a limit": Case(
        {"n-1": {"gpus": 8, "cpu_milli": 8_000}, "n-2": {"gpus": 8, "cpu_milli": 8_000}},
        [{"gpus": 1, "cpu_milli": 7_000}],
        {"gpus": 2, "cpu_milli": 1_000},
        [on("n-2", 0, 1)],
    ),
    "memory is a limit": Case(
        {"n-1": {"gpus": 8, "memory_bytes": 8 * GIB}, "n-2": {"gpus": 8, "memory_bytes": 8 * GIB}},
        [{"gpus": 1, "memory_bytes": 7 * GIB}],
        {"gpus": 2, "memory_bytes": GIB},
        [on("n-2", 0, 1)],
    ),
    "CPU is a limit for fractions": Case(
        {"n-1": {"gpus": 1, "cpu_milli": 1_000}, "n-2": {"gpus": 1, "cpu_milli": 1_000}},
        [{"gpu_milli": 100, "cpu_milli": 800}],
        {"gpu_milli": 100, "cpu_milli": 300},
        [on("n-2", 0)],
    ),
    "who asks for no CPU may go where none is left": Case(
        {"n-1": {"gpus": 2, "cpu_milli": 1_000}}, [{"gpus": 1, "cpu_milli": 1_000}], {"gpus": 1}, [on("n-1", 1)]
    ),
    "devices need not be numbered from 0": Case({"n-1": {"gpus": (7, 3, 5)}}, [], {"gpus": 2}, [on("n-1", 3, 5)]),
}


@pytest.mark.parametrize("name", CASES)
def test_placement(name: str) -> None:
    case = CASES[name]
    world = World()
    for node_id, fields in case.nodes.items():
        world.node(node_id, **fields)
    for fields in case.running:
        world.runs(**fields)
    job_id = world.submit(**case.job)
    world.tick()
    assert (world.placement(job_id) if world.is_running(job_id) else None) == case.expected


def test_ranks_addresses_and_amounts_follow_the_shares() -> None:
    world = World()
    for node_id in ("n-1", "n-2", "n-3"):
        world.node(node_id)
    job_id = world.runs(gpus=20, cpu_milli=1_000, memory_bytes=GIB)
    bound = world.attempt(job_id).bound
    assert [list(share.ranks) for share in bound.shares] == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]
    assert [share.cpu_milli for share in bound.shares] == [8_000, 8_000, 4_000]
    assert [share.memory_bytes for share in bound.shares] == [8 * GIB, 8 * GIB, 4 * GIB]
    assert bound.world_size == 20
    assert bound.master_address == bound.shares[0].address == "n-1.cluster"
    assert world.state.nodes["n-3"].cpu_free_milli == 60_000
    assert world.state.nodes["n-3"].memory_free_bytes == 508 * GIB


def test_ids_compare_naturally() -> None:
    ids = ["node-10", "node-2", "node-2a", "2", "10", "a", "node-02", "node-1", ""]
    assert sorted(ids, key=natural) == ["", "2", "10", "a", "node-1", "node-02", "node-2", "node-2a", "node-10"]
