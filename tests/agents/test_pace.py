"""Ranks that are slower than their peers are reported, with what they are slower by."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.agents.pace import Pace, slow_ranks
from gangline.events.control import RankSlow
from gangline.events.decisions import GangBound
from tests.agents.node import NODE, Node, gang, stop, wait_for

STEPS = """
import os, time
from pathlib import Path
from gangline.schemas.spool import OWN_TIME, Point, SpoolHead, SpoolWriter, spool_path
rank = int(os.environ['RANK'])
head = SpoolHead(run='job-a', attempt=1, rank=rank, created_at_us=0)
spool = SpoolWriter(spool_path(Path(os.environ['GANGLINE_SPOOL_DIR']), rank), head)
for step in range(1_000_000):
    step_us, own_s = {times}
    values = {{}} if own_s is None else {{OWN_TIME: own_s}}
    spool.append(Point(at_us=step * step_us, step=step, values=values))
    if step == 100: print('hundred', flush=True)
    time.sleep(0.002)
"""
"""Logs as the SDK does, with times of its own, so that no busy machine makes a rank slow."""

OFTEN = ("--pace-window", "0.4")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as started:
        yield started


def trains(node: Node, times: str, ranks: int = 3) -> GangBound:
    bound = gang("python", "-c", STEPS.format(times=times), ranks=ranks)
    node.start_agent(*OFTEN)
    node.decide(bound)
    return bound


def ends(node: Node, bound: GangBound) -> None:
    node.decide(stop(bound, grace_s=20))
    node.wait_gone(bound)


def test_a_rank_that_takes_longer_than_its_peers_is_reported_again_and_again(node: Node) -> None:
    bound = trains(node, "100_000 if rank == 1 else 20_000, None")
    slow = node.wait_fact(RankSlow, bound, count=3)
    assert {one.rank for one in node.facts(RankSlow, bound)} == {1}
    assert slow.node_id == NODE
    assert slow.slowness_ppm > 1_500_000
    assert "rank 1 of job-a, on node-1, takes" in node.stderr.read_text()
    ends(node, bound)


def test_a_rank_that_others_wait_for_is_found_by_its_own_time(node: Node) -> None:
    """As in a gang that goes in step: by the clock all of them are as slow as the slowest."""
    bound = trains(node, "100_000, 0.06 if rank == 2 else 0.01")
    node.wait_fact(RankSlow, bound, count=2)
    assert {one.rank for one in node.facts(RankSlow, bound)} == {2}
    ends(node, bound)


def test_ranks_that_go_in_step_are_not_reported_until_one_does_not(node: Node) -> None:
    bound = trains(node, "20_000 if step < 500 or rank else 60_000, None")
    node.wait_output(bound, "hundred")
    assert not node.facts(RankSlow, bound)
    node.wait_fact(RankSlow, bound)
    assert {one.rank for one in node.facts(RankSlow, bound)} == {0}
    ends(node, bound)


def test_a_slow_rank_is_found_by_an_agent_that_adopted_it(node: Node) -> None:
    bound = trains(node, "100_000 if rank == 1 else 20_000, None")
    node.wait_output(bound, "hundred")
    node.kill_agent()
    before = len(node.facts(RankSlow, bound))
    node.start_agent(*OFTEN)
    wait_for(lambda: len(node.facts(RankSlow, bound)) > before, "a report of the next agent")
    ends(node, bound)


def pace(rank: int, step_us: int, role: str = "", *, own: bool = False) -> Pace:
    return Pace(rank=rank, role=role, node_id=NODE, step_us=step_us, own=own, at_us=0)


CASES: dict[str, tuple[list[Pace], list[tuple[int, int]]]] = {
    "one of four": ([pace(0, 100_000), pace(1, 100_000), pace(2, 250_000), pace(3, 90_000)], [(2, 2_500_000)]),
    "one of two": ([pace(0, 100_000), pace(1, 300_000)], [(1, 3_000_000)]),
    "a little": ([pace(0, 100_000), pace(1, 140_000)], []),
    "by microseconds": ([pace(0, 10), pace(1, 300)], []),
    "alone": ([pace(0, 100_000)], []),
    "of other roles": ([pace(0, 100_000), pace(1, 900_000, "actor"), pace(2, 900_000, "actor")], []),
    "measured in two ways": ([pace(0, 100_000, own=True), pace(1, 900_000)], []),
}


@pytest.mark.parametrize("case", CASES)
def test_slow_is_half_as_long_again_as_the_median_of_the_peers(case: str) -> None:
    paces, slow = CASES[case]
    assert [(one.rank, ppm) for one, ppm in slow_ranks(paces)] == slow
