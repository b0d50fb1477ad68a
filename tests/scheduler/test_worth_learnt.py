"""A scheduler learns from what it admits, by a decision of the round, and keeps what it learnt in its state."""

from gangline.events.decisions import TypePrice, WorthLearnt
from gangline.events.policy import RULES, Policy
from gangline.scheduler.canonical import from_bytes, to_bytes
from gangline.scheduler.evolve import apply_decision
from gangline.scheduler.worth import LINEAR, UNLEARNT
from tests.scheduler.world import GIB, World, all_of, the


class Arrivals:
    """A world with a node, and how jobs came to it."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.world = World(policy or Policy())
        self.world.node("n-1", gpus=4)
        self.world.tick()

    def come(self, count: int, **asked: object) -> list[WorthLearnt]:
        """Submit jobs one a round and return what was learnt."""
        learnt: list[WorthLearnt] = []
        for _ in range(count):
            self.world.submit(**asked)
            learnt += all_of(WorthLearnt, self.world.tick())
        return learnt


def test_it_learns_in_the_round_that_admits_the_first_job() -> None:
    arrivals = Arrivals()
    (worth,) = arrivals.come(1, gpu_milli=500)
    assert (worth.arrivals, worth.of_free[49], worth.of_free[50], worth.of_free[100]) == (1, 0, 500, 1000)
    assert arrivals.world.state.seen.worth == worth


def test_it_learns_at_the_arrivals_that_policy_names() -> None:
    arrivals = Arrivals(Policy(worth_refresh_arrivals=4))
    assert [worth.arrivals for worth in arrivals.come(14, gpu_milli=100)] == [1, 2, 4, 8, 12]


def test_a_job_that_is_refused_did_not_arrive() -> None:
    arrivals = Arrivals()
    assert arrivals.come(3, gpus=5) == []
    assert arrivals.world.state.seen.arrivals == 0


def test_many_jobs_of_one_round_are_learnt_from_once() -> None:
    world = World()
    world.node("n-1", gpus=4)
    for _ in range(300):
        world.submit(gpu_milli=300)
    assert the(WorthLearnt, world.tick()).arrivals == 300


def test_cpu_and_memory_are_counted_for_every_rank() -> None:
    arrivals = Arrivals(Policy(worth_kept_ppm=1_000_000))
    arrivals.world.node("n-2", gpus=4, cpu_milli=64_000, memory_bytes=256 * GIB)
    arrivals.come(1, gpus=4, cpu_milli=10_000, memory_bytes=GIB)
    seen = arrivals.world.state.seen
    assert (seen.gpu_milli, seen.cpu_milli, seen.memory_bytes) == (4_000, 40_000, 4 * GIB)
    assert seen.worth.cpu_milli_per_gpu == 9_000


def test_a_scarce_type_gets_a_price_from_what_is_free() -> None:
    world = World()
    world.node("n-1", gpus=6, gpu_type="A")
    world.node("n-2", gpus=2, gpu_type="B")
    world.submit(gpus=1, gpu_types=("B",))
    assert the(WorthLearnt, world.tick()).prices == (TypePrice(gpu_type="B", price=4_000),)


def test_without_the_rule_nothing_is_learnt() -> None:
    arrivals = Arrivals(Policy(rules=tuple(name for name in RULES if name != "worth")))
    assert arrivals.come(4, gpu_milli=500) == []
    assert arrivals.world.state.seen.worth == UNLEARNT
    assert arrivals.world.state.seen.worth.of_free == LINEAR
    assert arrivals.world.state.seen.arrivals == 4, "so that it can be switched on"


def test_policy_says_how_much_of_the_past_counts() -> None:
    arrivals = Arrivals(Policy(worth_kept_ppm=500_000))
    arrivals.come(1, gpu_milli=500)
    assert (arrivals.world.state.seen.sizes[50], arrivals.world.state.seen.gpu_milli) == (500, 250)


def test_what_was_learnt_survives_a_snapshot() -> None:
    arrivals = Arrivals()
    arrivals.come(5, gpu_milli=460, gpu_types=("H100",))
    state = arrivals.world.state
    assert state.seen.worth != UNLEARNT
    assert from_bytes(to_bytes(state)).seen == state.seen


def test_indexes_that_were_kept_went_by_what_was_learnt_before() -> None:
    arrivals = Arrivals()
    world = arrivals.world
    world.views.sync(world.state)
    learnt = WorthLearnt(
        arrivals=1, of_free=(0,) * 101, prices=(), cpu_milli_per_gpu=0, memory_bytes_per_gpu=0, basis=()
    )
    world.state = apply_decision(world.state, learnt)
    world.views.sync(world.state)
    assert world.views.nodes.fit.worth == learnt
