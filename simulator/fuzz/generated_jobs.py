"""Jobs for small worlds: of every size, kind and conduct, most of which could run, and some of which never may."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gangline.events.policy import Queue
from gangline.events.types import SECOND_US, WHOLE_MILLI, Elastic, JobSpec, Role, Topology
from gangline.simulator.fuzz.dice import Dice
from gangline.simulator.fuzz.generated_policies import leaves
from gangline.simulator.fuzz.plan import (
    CANNOT_EVER_LAUNCH,
    CANNOT_LAUNCH,
    LASTS,
    NODE_CANNOT_LAUNCH,
    AnyStep,
    Conduct,
    Machine,
    OnJob,
    Report,
    Submit,
)

REQUIRED: tuple[Topology, ...] = ("none", "none", "none", "none", "none", "none", "node", "pod")
PREFERRED: tuple[Topology, ...] = ("none", "none", "none", "pod")
KINDS = ("plain",) * 14 + ("elastic", "elastic", "array", "interactive", "roles", "roles")
ENDINGS = (LASTS, LASTS, LASTS, 1, -9, CANNOT_LAUNCH, CANNOT_EVER_LAUNCH, NODE_CANNOT_LAUNCH)


class Jobs:
    """Draws the jobs of a case, and what their users do with them."""

    def __init__(
        self, dice: Dice, machines: Sequence[Machine], tree: Sequence[Queue], ends_s: int, *, crowded: bool
    ) -> None:
        self._dice = dice
        self._crowded = crowded
        self._ends_s = ends_s
        self._sizes = [len(machine.gpus) for machine in machines]
        self._total = sum(self._sizes)
        self._types = sorted({machine.gpu_type for machine in machines})
        self._queues = leaves(tree)
        self._preemptible_percent = dice.pick([20, 50, 80, 80, 100, 100])
        self._work_most_s = dice.pick([5, 20, 60])

    def steps(self) -> list[AnyStep]:
        """Return submissions, repeats of them, and commands about them."""
        dice = self._dice
        count = dice.pick([10, 15, 20, 30] if self._crowded else [2, 5, 10, 15, 25])
        first = dice.pick(self._queues)
        found: list[AnyStep] = []
        at_s = 0
        for number in range(count):
            if not dice.percent(40):
                at_s = min(at_s + dice.between(0, 2 * self._ends_s // count), self._ends_s)
            spec = self._spec(number)
            if self._crowded:
                # One team comes first and takes what there is, with jobs that may give way.
                comes_first = number < count // 2
                queue = first if comes_first else spec.queue
                spec = replace(spec, queue=queue, preemptible=comes_first or spec.preemptible)
            submit = Submit(at_s=at_s, number=number, spec=spec, conduct=self._conduct())
            found.append(submit)
            if dice.percent(5):
                found.append(Submit(at_s=at_s + dice.below(20), number=number, spec=submit.spec))
            if dice.percent(20):
                found.append(self._command(at_s, number))
            if dice.percent(10):
                for _ in range(dice.between(1, 4)):
                    report_s = at_s + dice.between(1, 30)
                    found.append(Report(at_s=report_s, number=number, what="idle" if dice.percent(30) else "slow"))
        return found

    def _command(self, at_s: int, number: int) -> OnJob:
        dice = self._dice
        return OnJob(
            at_s=at_s + dice.below(30),
            number=number if dice.percent(95) else 999,
            does=dice.pick(["cancel", "hold", "release", "retry", "reprioritise"]),
            priority=dice.between(-2, 3),
            task=dice.below(3) if dice.percent(15) else None,
        )

    def _conduct(self) -> Conduct:
        dice = self._dice
        troubled = dice.percent(20)
        return Conduct(
            work_s=dice.between(20, 60) if self._crowded else dice.between(1, self._work_most_s),
            endings=tuple(dice.pick(ENDINGS) for _ in range(dice.between(1, 4))) if troubled else (),
            ends_after_s=dice.between(0, 8),
            checkpoint_s=dice.pick([0, 2, 5]),
            upload_s=dice.pick([0, 0, 3]),
            leaves_after_s=dice.pick([0, 0, 1, 4, 12]),
        )

    def _spec(self, number: int) -> JobSpec:
        dice = self._dice
        gpus, gpu_milli, nodes = self._size()
        kind = dice.pick(KINDS)
        elastic, array, interactive = None, None, False
        if kind == "elastic" and gpu_milli == WHOLE_MILLI and gpus:
            step = dice.between(1, 2)
            elastic = Elastic(min_gpus=gpus, max_gpus=gpus + step * dice.between(0, 2), step_gpus=step)
            nodes = None
        elif kind == "array":
            array = dice.between(1, 4)
        elif kind == "interactive" and gpus <= 1:
            interactive = True
        return JobSpec(
            name=f"job-{number}",
            queue=dice.pick(self._queues) if dice.percent(97) else "nowhere",
            command=("true",),
            gpus=gpus,
            gpu_milli=gpu_milli,
            nodes=nodes,
            gpu_types=tuple(dice.some(self._types, 70)) if gpus and dice.percent(25) else (),
            cpu_milli=dice.pick([0, 0, 500, 1_000, 4_000]),
            memory_bytes=dice.pick([0, 0, 0, 1_000, 3_000]),
            priority=dice.pick([0, 0, 0, 1, 2]),
            retries=dice.pick([None, None, 0, 1, 5]),
            max_runtime_us=_seconds(dice.pick([None, None, 5, 20, 60])),
            grace_us=dice.pick([None, None, 0, 5 * SECOND_US]),
            preemptible=elastic is not None or dice.percent(self._preemptible_percent),
            topology_required=dice.pick(REQUIRED),
            topology_preferred=dice.pick(PREFERRED),
            elastic=elastic,
            interactive=interactive,
            roles=self._roles() if kind == "roles" else (),
            array=array,
            array_parallel=dice.between(1, 2) if array is not None and dice.percent(50) else None,
            after=tuple(str(dice.below(number + 1)) for _ in range(dice.between(1, 2))) if dice.percent(5) else (),
            data_bytes=dice.pick([0, 0, 10, 5_000]),
            held=dice.percent(3),
        )

    def _roles(self) -> tuple[Role, ...]:
        """Return actors with CPUs, and now and then one with a part of a GPU."""
        dice = self._dice
        return tuple(
            Role(
                name=f"role-{number}",
                ranks=dice.between(1, 3),
                gpu_milli=dice.pick([0, 0, 0, 300, 1000]),
                cpu_milli=dice.pick([0, 500, 1_000, 2_000]),
                memory_bytes=dice.pick([0, 0, 500]),
            )
            for number in range(dice.between(1, 2))
        )

    def _size(self) -> tuple[int, int, int | None]:
        """Return GPUs, thousandths of each, and nodes."""
        dice = self._dice
        sizes: tuple[tuple[int, Callable[[], tuple[int, int, int | None]]], ...] = (
            (25, lambda: (1, WHOLE_MILLI, None)),
            (20, lambda: (1, dice.pick([100, 250, 300, 500, 700, 950]), None)),
            (5, lambda: (0, WHOLE_MILLI, None)),
            (20, lambda: (dice.between(1, max(*self._sizes, 1)), WHOLE_MILLI, None)),
            (15, lambda: (dice.between(1, max(self._total, 1)), WHOLE_MILLI, None)),
            (10, self._spread),
            (5, lambda: (self._total + dice.between(0, 2), WHOLE_MILLI, None)),
        )
        drawn = dice.below(100)
        for percent, size in sizes:
            if drawn < percent:
                return size()
            drawn -= percent
        raise AssertionError(drawn)

    def _spread(self) -> tuple[int, int, int]:
        nodes = self._dice.between(1, len(self._sizes))
        return nodes * self._dice.between(1, 2), WHOLE_MILLI, nodes


def _seconds(time_s: int | None) -> int | None:
    return None if time_s is None else time_s * SECOND_US
