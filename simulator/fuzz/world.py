"""Runs a case: users, operators, nodes and the scheduler's crashes around the real core, in virtual time."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gangline.events.control import (
    ActivatePolicy,
    ClockTicked,
    LogCreated,
    TickerTookOver,
)
from gangline.events.identity import FORMAT
from gangline.events.types import SECOND_US, Decision
from gangline.scheduler.decide import next_due_us
from gangline.simulator.fuzz.acts import LOG_ID, START_US, Acts
from gangline.simulator.fuzz.checked import Checked, decided_anew
from gangline.simulator.fuzz.dice import keyed
from gangline.simulator.fuzz.machines import Machines
from gangline.simulator.fuzz.mail import Mail
from gangline.simulator.fuzz.plan import Plan
from gangline.simulator.fuzz.running import Clock
from gangline.simulator.fuzz.scene import Violation

TICKER = "ticker"
AT_ONCE = 60
"""Ticks without time passing while something is due at once; more mean that the core never gets done."""
QUIET_TICKS = 12
"""Ticks of 5 s in which nothing happens, after which nothing will."""
MOST_TICKS = 2_000
"""After the end of the steps: by then every job has ended, or waits for good."""


class Ran(NamedTuple):
    """What a case came to."""

    rounds: int
    records: int
    ended: int
    waiting: int
    bindings: int
    preemptions: int


class FuzzWorld:
    """A case under way. Times are seconds from its beginning."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now_s = 0
        self.clock = Clock(LOG_ID, START_US)
        self.mail = Mail(plan.noise)
        self.machines = Machines(plan.machines, plan.noise, self.clock, self.mail)
        self.core = self._core()
        self._steps = sorted(plan.steps, key=lambda step: step.at_s)
        self._taken = 0
        self._ticks = 0
        self.acts = Acts(self.clock, self.mail, self.machines, self.core)
        self._counts = dict.fromkeys(("JobEnded", "GangBound", "PreemptionOrdered"), 0)

    def _core(self) -> Checked:
        return Checked(self.machines)

    def run(self) -> Ran:
        """Run the case to its end. Raises Violation."""
        core = self.core
        self._begin()
        self.acts.command(ActivatePolicy, policy=self.plan.policy)
        while self.now_s < self.plan.ends_s:
            gap_s = 1 + keyed(self.plan.noise.seed, "gap", self._ticks) % self.plan.noise.gap_most_s
            self._pass(gap_s)
        self.acts.mend()
        quiet = 0
        for _ in range(MOST_TICKS):
            before = len(core.rounds)
            self._pass(5)
            idle = self.machines.is_idle and self.mail.is_empty and len(core.rounds) == before
            quiet = quiet + 1 if idle else 0
            if quiet >= QUIET_TICKS:
                break
        else:
            raise Violation("every_world_comes_to_rest", len(core.control) - 1, f"not within {MOST_TICKS} ticks")
        decided_anew(core.control, core.rounds, core.digests)
        return Ran(
            rounds=len(core.rounds),
            records=len(core.control),
            ended=self._counts["JobEnded"],
            waiting=len(core.state.pending),
            bindings=self._counts["GangBound"],
            preemptions=self._counts["PreemptionOrdered"],
        )

    def _begin(self) -> None:
        """Append what a log begins with."""
        self.core.append(LogCreated(meta=self.acts.meta("log"), log_id=LOG_ID, format=FORMAT))
        self.core.append(TickerTookOver(meta=self.acts.meta("ticker"), ticker=TICKER))

    def _pass(self, gap_s: int) -> None:
        """Let time pass up to the next tick, and decide it."""
        self.now_s += gap_s
        self.acts.now_s = self.now_s
        while self._taken < len(self._steps) and self._steps[self._taken].at_s <= self.now_s:
            step = self._steps[self._taken]
            self._taken += 1
            self.acts.do(step)
        self.machines.step(self.now_s)
        for event in self.mail.due(self.now_s):
            self.core.append(event)
        self._decide()

    def _decide(self) -> None:
        """Tick, and again while something is due at once."""
        self._tick()
        for _ in range(AT_ONCE):
            due_us = next_due_us(self.core.state)
            if due_us is None or due_us > self.core.state.now_us:
                return
            self._tick()
        raise Violation("nothing_is_due_at_once_for_ever", len(self.core.control) - 1, f"it was, {AT_ONCE} times")

    def _tick(self) -> None:
        self._ticks += 1
        meta = self.acts.meta(f"tick-{self._ticks}")
        meta = replace(meta, at_us=meta.at_us + self.acts.skew_s * SECOND_US)
        self.acts.skew_s = 0
        self.core.append(ClockTicked(meta=meta, ticker=TICKER))
        crash, self.acts.crash = self.acts.crash, None
        if crash is not None and keyed(self.plan.noise.seed, "crash", self._ticks) % 2:
            self.core.restart(crash.rounds_back)
            crash = None
        self._read(self.core.decide())
        if crash is not None:
            self.core.restart(crash.rounds_back)

    def _read(self, decided: Sequence[Decision]) -> None:
        """Let the agents read what was decided."""
        self.machines.rounds.append((self.now_s, tuple(decided)))
        for decision in decided:
            name = type(decision).__name__
            if name in self._counts:
                self._counts[name] += 1


def run(plan: Plan) -> Ran:
    """Run a case. Raises Violation, also where the core itself raises something."""
    return run_world(FuzzWorld(plan))


def run_world(world: FuzzWorld) -> Ran:
    """Run a world. Raises Violation, also where the core itself raises something."""
    try:
        return world.run()
    except Violation:
        raise
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = "somewhere" if where is None else f"{where.tb_frame.f_code.co_name}, line {where.tb_lineno}"
        invariant = f"the_core_raises_nothing, like {type(error).__name__} in {place}"
        raise Violation(invariant, len(world.core.control) - 1, str(error)) from error
