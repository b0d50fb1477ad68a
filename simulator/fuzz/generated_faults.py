"""What befalls small worlds: nodes go down, are cut off or break, operators act, the scheduler crashes."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gangline.events.policy import Queue
from gangline.simulator.fuzz.dice import Dice
from gangline.simulator.fuzz.generated_policies import policy, queues
from gangline.simulator.fuzz.plan import (
    Activate,
    AgentRestart,
    AnyStep,
    Crash,
    Cut,
    Down,
    Fault,
    Machine,
    Odd,
    OnNode,
    Pressure,
    Queueing,
    Skew,
)


def faults(dice: Dice, machines: Sequence[Machine], tree: tuple[Queue, ...], ends_s: int) -> list[AnyStep]:
    """Return steps of a few kinds, a handful in most cases, none in some."""
    kinds: list[Callable[[], AnyStep]] = [
        lambda: Down(at_s=when(), node_id=node().node_id, for_s=dice.pick([1, 2, 6, 30]), after=_changed(dice, node())),
        lambda: Cut(at_s=when(), node_id=node().node_id, for_s=dice.pick([1, 2, 6, 30])),
        lambda: AgentRestart(at_s=when(), node_id=node().node_id),
        lambda: Fault(at_s=when(), node_id=node().node_id, gpu=dice.pick([None, 0, 1, 2])),
        lambda: OnNode(at_s=when(), node_id=node().node_id, does=dice.pick(["cordon", "uncordon", "drain", "check"])),
        lambda: Activate(at_s=when(), policy=policy(dice, tree)),
        lambda: Queueing(at_s=when(), queue=_changed_queue(dice, tree), removed=dice.percent(30)),
        lambda: Pressure(at_s=when(), pressed=dice.percent(60)),
        lambda: Odd(
            at_s=when(),
            what=dice.pick(
                ["bytes", "truncated", "misplaced", "phantom_job", "phantom_node", "phantom_attempt", "other_ticker"]
            ),
        ),
        lambda: Crash(at_s=when(), rounds_back=dice.below(6)),
        lambda: Skew(at_s=when(), by_s=dice.pick([-100_000, -3, 3, 100_000])),
    ]

    def when() -> int:
        return dice.between(1, ends_s)

    def node() -> Machine:
        return dice.pick(machines)

    chosen = [kind for kind in kinds if dice.percent(60)]
    if not chosen or dice.percent(10):
        return []
    found = [dice.pick(chosen)() for _ in range(dice.pick([1, 3, 8, 16]))]
    # A node that reports another name is another node.
    return [
        replace(step, after=replace(step.after, node_id=step.node_id))
        if isinstance(step, Down) and step.after is not None
        else step
        for step in found
    ]


def _changed(dice: Dice, machine: Machine) -> Machine | None:
    """Return other hardware for a node that boots, now and then."""
    if dice.percent(75):
        return None
    return replace(
        machine,
        gpus=tuple(range(dice.below(5))),
        cpu_milli=dice.pick([2_000, machine.cpu_milli]),
        gpu_type=machine.gpu_type if dice.percent(80) else "B",
    )


def _changed_queue(dice: Dice, tree: tuple[Queue, ...]) -> Queue:
    """Return a queue of another tree, or a new one below one that there is."""
    if dice.percent(30):
        return Queue(path=f"{dice.pick(tree).path}/new")
    return replace(dice.pick(queues(dice, ("A", "B"), 6)), path=dice.pick(tree).path)
