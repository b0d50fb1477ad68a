"""The tree of queues: what each is guaranteed adds up, stated or not, per type, and while jobs run."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gangline.events.policy import Policy, Queue, Quota
from gangline.scheduler.quota import Tree, fault_of, parent, prefixes
from tests.scheduler.world import World

CLUSTER = {"A100": 64_000, "H100": 128_000}


def queue(path: str, guarantee_milli: int | None = None) -> Queue:
    return Queue(path=path, quotas=(Quota(guarantee_milli=guarantee_milli),))


def random_tree(seed: int) -> tuple[Queue, ...]:
    """Return queues three deep, some with guarantees; they may not add up."""
    draw = random.Random(seed)
    paths: list[str] = []
    for team in range(draw.randint(1, 4)):
        paths.append(f"t{team}")
        for project in range(draw.randint(0, 3)):
            paths.append(f"t{team}/p{project}")
            paths += [f"t{team}/p{project}/x{number}" for number in range(draw.randint(0, 2))]
    return tuple(queue(path, draw.choice((None, 0, 1_000, 5_500, 16_000, 40_000))) for path in paths)


@given(seed=st.integers(0, 5_000))
def test_a_tree_that_is_accepted_guarantees_no_more_below_a_queue_than_to_it(seed: int) -> None:
    queues = random_tree(seed)
    tree = Tree(queues, CLUSTER)
    if fault_of(queues) is not None:
        return
    # Below queues that state none, it follows from the nodes, which come and go: nothing is refused for it.
    stated = {one.path: one.quotas[0].guarantee_milli is not None for one in queues}
    for above in [path for path in stated if any(stated[name] for name in prefixes(path))]:
        for gpu_type in CLUSTER:
            below = sum(tree.limits(path, gpu_type).guarantee_milli for path in tree.children[above])
            assert below <= tree.limits(above, gpu_type).guarantee_milli


@given(seed=st.integers(0, 5_000))
def test_those_that_state_none_share_equally_what_the_others_leave(seed: int) -> None:
    queues = random_tree(seed)
    tree = Tree(queues, CLUSTER)
    stated = {one.path: one.quotas[0].guarantee_milli for one in queues}
    for gpu_type, cluster_milli in CLUSTER.items():
        for above in ("", *tree.paths):
            has = tree.limits(above, gpu_type).guarantee_milli if above else cluster_milli
            silent = [path for path in tree.children[above] if stated[path] is None]
            rest = max(has - sum(stated[path] or 0 for path in tree.children[above]), 0)
            assert [tree.limits(path, gpu_type).guarantee_milli for path in silent] == [
                rest // max(len(silent), 1)
            ] * len(silent)


@given(seed=st.integers(0, 5_000))
def test_the_order_in_which_queues_are_given_changes_nothing(seed: int) -> None:
    queues = random_tree(seed)
    shuffled = random.Random(seed).sample(queues, len(queues))
    one, other = Tree(queues, CLUSTER), Tree(shuffled, dict(reversed(CLUSTER.items())))
    assert one.paths == other.paths
    assert all(one.limits(path, gpu_type) == other.limits(path, gpu_type) for path in one.paths for gpu_type in CLUSTER)


@given(seed=st.integers(0, 5_000))
def test_a_tree_is_refused_just_where_stated_guarantees_exceed_the_one_above_whatever_the_cluster(seed: int) -> None:
    queues = random_tree(seed)
    stated = {one.path: one.quotas[0].guarantee_milli for one in queues}
    trees = [Tree(queues, {"A100": milli}) for milli in (0, 10_000_000)]
    exceeds = [
        path
        for path in stated
        if all(
            sum(milli or 0 for name, milli in stated.items() if parent(name) == path)
            > tree.limits(path, "A100").guarantee_milli
            for tree in trees
        )
    ]
    fault = fault_of(queues)
    assert (fault is None) == (not exceeds)
    if fault is not None:
        assert f"'{min(exceeds)}'" in fault.message


def test_a_quota_of_a_type_stands_before_the_one_for_every_type() -> None:
    tree = Tree(
        (Queue(path="q", quotas=(Quota(guarantee_milli=8_000), Quota(gpu_type="A100", guarantee_milli=1_000))),),
        CLUSTER,
    )
    assert tree.limits("q", "H100").guarantee_milli == 8_000
    assert tree.limits("q", "A100").guarantee_milli == 1_000


def test_a_queue_that_names_one_type_has_its_part_of_the_others() -> None:
    tree = Tree((Queue(path="a", quotas=(Quota(gpu_type="A100", guarantee_milli=1_000),)), Queue(path="b")), CLUSTER)
    assert [tree.limits(path, "H100").guarantee_milli for path in ("a", "b")] == [64_000, 64_000]
    assert [tree.limits(path, "A100").guarantee_milli for path in ("a", "b")] == [1_000, 63_000]


def test_what_is_left_does_not_fall_below_nought_when_nodes_have_gone() -> None:
    tree = Tree((queue("a", 200_000), queue("b")), CLUSTER)
    assert tree.limits("b", "H100").guarantee_milli == 0


@pytest.mark.parametrize("seed", range(6))
def test_what_queues_use_adds_up_while_jobs_run_and_the_tree_changes(seed: int) -> None:
    """Every tick compares kept indexes with rebuilt ones, too."""
    draw = random.Random(seed)
    paths = ("t", "t/a", "t/b", "u")
    policy = Policy(queues=tuple(queue(path) for path in paths))
    it = World(policy)
    for number in range(3):
        it.node(f"node-{number}", 8)
    it.tick()
    live: list[str] = []
    for _ in range(25):
        live.append(it.submit(queue=draw.choice(("t/a", "t/b", "u")), gpus=draw.choice((1, 2, 8))))
        it.tick(5)
        if draw.random() < 0.4:
            limits = {path: draw.choice((None, 0, 4_000)) for path in ("t/a", "t/b")}
            limits |= {"t": None, "u": draw.choice((None, 8_000))}
            it.activate(replace(policy, queues=tuple(queue(path, limits[path]) for path in paths)))
            it.tick()
        if draw.random() < 0.3:
            ended = live.pop(draw.randrange(len(live)))
            if it.is_running(ended):
                it.exits(ended)
                it.tick()
        use = it.views.uses.use
        assert use["t", "H100"] == use["t/a", "H100"] + use["t/b", "H100"]
        running = sum(job.spec.gpus for _, job in it.state.jobs.items() if job.attempt is not None)
        assert use["t", "H100"] + use["u", "H100"] == 1_000 * running
