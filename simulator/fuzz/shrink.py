"""Makes a failing case small, and keeps it failing: steps, nodes, noise and numbers that are not needed go.

Steps are left out by delta debugging (Zeller and Hildebrandt, 2002). A case counts as failing only while the same
invariant does not hold; which other thing breaks on the way is no matter.
"""

from collections.abc import Callable, Iterator

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields, replace

from gangline.events.policy import Policy, Queue
from gangline.events.types import JobSpec
from gangline.simulator.fuzz.plan import Activate, AnyStep, Conduct, Noise, Plan, Submit
from gangline.simulator.fuzz.scene import Violation

MOST_RUNS = 1_500
"""Cases tried; what is reached by then is small enough."""


class Shrinker:
    """Shrinks one case; `runs` counts what was tried."""

    def __init__(self, run: Callable[[Plan], object], plan: Plan, violation: Violation) -> None:
        self._run = run
        self.plan = plan
        self.violation = violation
        self.runs = 0

    def shrink(self) -> Plan:
        """Return the smallest case that was found."""
        while self.runs < MOST_RUNS:
            before = self.plan
            self._leave_out_steps()
            for simpler in (self._machines, self._settings, self._steps):
                self._first_that_fails_again(simpler)
            if self.plan == before:
                break
        return self.plan

    def _fails(self, plan: Plan) -> bool:
        if self.runs >= MOST_RUNS:
            return False
        self.runs += 1
        try:
            self._run(plan)
        except Violation as violation:
            if violation.invariant == self.violation.invariant:
                self.plan, self.violation = plan, violation
                return True
        return False

    def _leave_out_steps(self) -> None:
        size = max(len(self.plan.steps) // 2, 1)
        while size:
            start = 0
            while start < len(self.plan.steps):
                steps = self.plan.steps
                if not self._fails(replace(self.plan, steps=(*steps[:start], *steps[start + size :]))):
                    start += size
            size //= 2

    def _first_that_fails_again(self, simpler: Callable[[Plan], Iterator[Plan]]) -> None:
        """Take every simpler case that fails, and go on from it."""
        changed = True
        while changed and self.runs < MOST_RUNS:
            changed = False
            for plan in simpler(self.plan):
                if self._fails(plan):
                    changed = True
                    break

    def _machines(self, plan: Plan) -> Iterator[Plan]:
        named = {getattr(step, "node_id", "") for step in plan.steps}
        for place, machine in enumerate(plan.machines):
            others = (*plan.machines[:place], *plan.machines[place + 1 :])
            if machine.node_id not in named and others:
                yield replace(plan, machines=others)
            for changes in ({"joins_s": 0}, {"gpus": machine.gpus[:-1]}, {"pod": "pod-0"}, {"gpu_type": "A"}):
                changed = replace(machine, **changes)
                if changed != machine:
                    yield replace(plan, machines=(*plan.machines[:place], changed, *plan.machines[place + 1 :]))

    def _settings(self, plan: Plan) -> Iterator[Plan]:
        quiet = Noise(seed=plan.noise.seed)
        for name in ("delayed_percent", "repeated_percent", "lag_most_s", "gap_most_s"):
            if getattr(plan.noise, name) != getattr(quiet, name):
                yield replace(plan, noise=replace(plan.noise, **{name: getattr(quiet, name)}))
        if plan.ends_s > 1:
            last_s = max((step.at_s for step in plan.steps), default=0) + 1
            for ends_s in (last_s, plan.ends_s // 2):
                if ends_s < plan.ends_s:
                    yield replace(plan, ends_s=ends_s)
        for policy in _simpler_policies(plan.policy):
            yield replace(plan, policy=policy)

    def _steps(self, plan: Plan) -> Iterator[Plan]:
        for place, step in enumerate(plan.steps):
            for simpler in _simpler_steps(step):
                yield replace(plan, steps=(*plan.steps[:place], simpler, *plan.steps[place + 1 :]))


def _simpler_policies(policy: Policy) -> Iterator[Policy]:
    # Without a rule first: it says most about where the fault lies.
    for rule in policy.rules:
        yield replace(policy, rules=tuple(other for other in policy.rules if other != rule))
    for place in range(len(policy.queues)):
        yield replace(policy, queues=(*policy.queues[:place], *policy.queues[place + 1 :]))
    for place, queue in enumerate(policy.queues):
        if queue.quotas:
            bare = Queue(path=queue.path)
            yield replace(policy, queues=(*policy.queues[:place], bare, *policy.queues[place + 1 :]))
    for field in fields(Policy):
        if field.name not in {"queues", "rules"} and getattr(policy, field.name) != field.default:
            yield replace(policy, **{field.name: field.default})


def _simpler_steps(step: AnyStep) -> Iterator[AnyStep]:
    if step.at_s > 0:
        for at_s in dict.fromkeys((0, step.at_s // 2, step.at_s - 1)):
            yield replace(step, at_s=at_s)
    if isinstance(step, Submit):
        needed = {"name", "queue", "command", "gpus"}
        for field in fields(JobSpec):
            if field.name not in needed and getattr(step.spec, field.name) != _default(field):
                yield replace(step, spec=replace(step.spec, **{field.name: _default(field)}))
        if step.spec.gpus > 1:
            yield replace(step, spec=replace(step.spec, gpus=step.spec.gpus - 1))
        for field in fields(Conduct):
            if getattr(step.conduct, field.name) != field.default:
                yield replace(step, conduct=replace(step.conduct, **{field.name: field.default}))
    if isinstance(step, Activate):
        for policy in _simpler_policies(step.policy):
            yield replace(step, policy=policy)


def _default(field: FieldInfo) -> object:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def shrunk(run: Callable[[Plan], object], plan: Plan, violation: Violation) -> tuple[Plan, Violation]:
    """Return a small case in which the same invariant does not hold, and how."""
    shrinker = Shrinker(run, plan, violation)
    return shrinker.shrink(), shrinker.violation
