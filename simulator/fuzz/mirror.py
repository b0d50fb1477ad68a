"""What a scheduler's process decides on a real log, beside what the same core decides here: the same, bit for bit."""

import time
from collections.abc import Callable

from gangline.events import codec
from gangline.events.decisions import RoundDecided, TermOpened
from gangline.events.log import CONTROL, DECISIONS, Entry, Log
from gangline.events.terms import NO_TERM, admit
from gangline.events.types import Decision
from gangline.scheduler.decide import round_is_due
from gangline.simulator.fuzz.checked import Checked
from gangline.simulator.fuzz.machines import Machines
from gangline.simulator.fuzz.scene import Violation

KEY = b"fuzz"
"""Of what is appended here, and not by a scheduler."""
ANSWERS_S = 60.0
"""Within which a process that runs writes the round that is due."""
READ_S = 0.005
"""How long a reader waits at a time."""


class Mirror(Checked):
    """Follows a real log and decides every tick on it anew; what is appended here goes to that log."""

    def __init__(self, machines: Machines, log: Log, nudge: Callable[[], None]) -> None:
        """Take a log that has its identity; `nudge` lets a little time pass for whoever decides, if that still runs."""
        super().__init__(machines)
        self._log = log
        self._nudge = nudge
        self._control = log.reader(CONTROL)
        self._decisions = log.reader(DECISIONS)
        self._terms = NO_TERM
        self.written: dict[int, bytes] = {}
        """The rounds that count, by the index of their tick."""
        self._behind = 1
        """Records that were appended here, with that which every log begins with, and not read yet."""

    def append_bytes(self, value: bytes) -> int:
        """Append a record to the log; it is folded when it is read."""
        self._log.append(CONTROL, [Entry(KEY, value)])
        self._behind += 1
        return -1

    @property
    def is_behind(self) -> bool:
        """Whether something that was appended here has not been read."""
        return self._behind > 0

    def follow(self) -> list[Decision]:
        """Take in what is new on the log, and return what was decided. Raises Violation where it is not the same."""
        found: list[Decision] = []
        for record in self._control.read(timeout_s=READ_S):
            super().append_bytes(record.value)
            self._behind -= record.key == KEY
            if round_is_due(self.state):
                found += self._compared(record.index)
        return found

    def _compared(self, index: int) -> tuple[Decision, ...]:
        decided = self.decide()
        expected = self.rounds.get(index)
        if expected is None:
            return decided
        deadline_s = time.monotonic() + ANSWERS_S
        while index not in self.written:
            self._read_rounds()
            self._nudge()
            if time.monotonic() > deadline_s:
                raise Violation("a_process_decides_what_is_due", index, f"no round within {ANSWERS_S:.0f} s")
        if self.written[index] != expected:
            raise Violation("a_process_decides_the_same", index, f"{codec.decode(self.written[index])} instead")
        return decided

    def _read_rounds(self) -> None:
        for record in self._decisions.read(timeout_s=READ_S):
            event = codec.decode(record.value)
            if isinstance(event, RoundDecided | TermOpened):
                after = admit(self._terms, event)
                if after is not None and isinstance(event, RoundDecided):
                    self.written[event.tick_index] = record.value
                self._terms = after or self._terms

    def close(self) -> None:
        """Release the readers. Raises Violation if the log holds a round that was not decided here."""
        self._read_rounds()
        self._control.close()
        self._decisions.close()
        more = sorted(set(self.written) - set(self.rounds))
        if more:
            raise Violation("a_process_decides_the_same", more[0], "this tick is without a round here")
