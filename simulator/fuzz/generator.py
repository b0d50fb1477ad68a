"""From a seed to a case: a small cluster, a tree of queues, a policy with short times, and what befalls them."""

from msgspec.structs import replace

from gangline.events.types import WHOLE_MILLI, Elastic
from gangline.simulator.fuzz.dice import Dice, keyed
from gangline.simulator.fuzz.generated_faults import faults
from gangline.simulator.fuzz.generated_jobs import Jobs
from gangline.simulator.fuzz.generated_policies import policy, queues, shared_tree, soon
from gangline.simulator.fuzz.plan import AnyStep, Machine, Noise, Plan, Submit

CROWDED_PERCENT = 40
"""Cases in which one team takes the cluster, and then the others want their part of it."""
STRETCHED_EVERY = 6
"""One case in so many has many elastic gangs, of which others wait for what they have above their least size."""
LONGEST_S = 90
"""Of the part of a case in which things are submitted and break."""


def generate(seed: int) -> Plan:
    """Return the case of a seed."""
    dice = Dice(seed)
    fleet = machines(dice)
    types = tuple(sorted({machine.gpu_type for machine in fleet}))
    total = sum(len(machine.gpus) for machine in fleet)
    crowded = dice.percent(CROWDED_PERCENT)
    tree = shared_tree(dice, total // len(types)) if crowded else queues(dice, types, total)
    first = policy(dice, tree)
    if crowded:
        first = soon(dice, first)
    ends_s = dice.between(20, LONGEST_S)
    steps: list[AnyStep] = Jobs(dice, fleet, tree, ends_s, crowded=crowded).steps()
    if not crowded or dice.percent(50):
        steps += faults(dice, fleet, tree, ends_s)
    if keyed(seed, "stretched") % STRETCHED_EVERY == 0:
        steps = [stretched(seed, step) if isinstance(step, Submit) else step for step in steps]
    steps.sort(key=lambda step: step.at_s)
    return Plan(seed=seed, policy=first, machines=fleet, steps=tuple(steps), noise=noise(dice, seed), ends_s=ends_s)


def stretched(seed: int, step: Submit) -> Submit:
    """Return every other job that may give way as one that runs on fewer GPUs, too, down to one, or on a few more."""
    spec = step.spec
    whole = spec.gpus and spec.gpu_milli == WHOLE_MILLI and spec.nodes is None and not spec.roles
    if not whole or not spec.preemptible or spec.elastic or spec.interactive or keyed(seed, step.number) % 2:
        return step
    most = spec.gpus + keyed(seed, step.number, "most") % 3
    return replace(step, spec=replace(spec, elastic=Elastic(min_gpus=1, max_gpus=most, step_gpus=1)))


def machines(dice: Dice) -> tuple[Machine, ...]:
    """Return one to seven nodes of one or two types in one to three pods."""
    count = dice.pick([1, 2, 2, 3, 3, 4, 4, 5, 7])
    types = dice.pick([("A",), ("A",), ("A", "B")])
    pods = dice.between(1, 3)
    size = dice.pick([1, 2, 2, 4, 4])
    found = []
    for number in range(count):
        gpus = size if dice.percent(75) else dice.pick([0, 1, 2, 4])
        indexes = tuple(range(gpus)) if dice.percent(90) else tuple(1 + 2 * index for index in range(gpus))
        found.append(
            Machine(
                node_id=f"node-{number if dice.percent(90) else number + 10}",
                pod=f"pod-{dice.below(pods)}",
                gpu_type=dice.pick(types),
                gpus=indexes,
                cpu_milli=dice.pick([4_000, 8_000, 16_000]),
                memory_bytes=dice.pick([4_000, 8_000, 16_000]),
                joins_s=0 if dice.percent(85) else dice.between(1, 30),
            )
        )
    unique = {machine.node_id: machine for machine in found}
    return tuple(unique.values())


def noise(dice: Dice, seed: int) -> Noise:
    """Return what befalls messages: nothing in a third of all cases."""
    gap_most_s = dice.pick([1, 1, 2, 5])
    if dice.percent(33):
        return Noise(seed=seed, gap_most_s=gap_most_s)
    return Noise(
        seed=seed,
        delayed_percent=dice.pick([0, 5, 30]),
        delay_most_s=dice.pick([2, 10]),
        repeated_percent=dice.pick([0, 5, 30]),
        repeat_most_s=dice.pick([0, 5, 30]),
        lag_most_s=dice.pick([0, 0, 2, 6]),
        gap_most_s=gap_most_s,
    )
