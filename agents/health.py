"""Examines the node at times by itself, and reports what is broken: the node as a whole, or one GPU.

Three sources: the examination that an operator may ask for, too; a program of the operator's, where there is one; and
the errors that the GPU driver tells of as they come (XIDs).
"""

import logging
import time
from pathlib import Path

from gangline.agents import check
from gangline.agents.facts import Facts
from gangline.agents.inventory import Inventory
from gangline.agents.outbox import Outbox
from gangline.agents.programs import run_program
from gangline.agents.xids import XidWatch

EVERY_S = 60.0
"""Between two examinations."""

IN_ROW = 2
"""Examinations in a row that have to find the node itself sick: a disk may be full for a moment."""

REPEAT_S = 600.0
"""What stays broken is reported again after so long: an operator may have taken the node back meanwhile."""

PROGRAM_S = 30.0
"""How long the operator's program may take; longer is a fault, as most of what hangs a node would hang it."""

SHOWN_CHARACTERS = 500
MAX_SAID_BYTES = 4_000
"""Of what that program says."""

_log = logging.getLogger(__name__)


class HealthWatch:
    """Examines one node. `look` belongs to one thread."""

    def __init__(self, inventory: Inventory, folder: Path, program: Path | None, facts: Facts, outbox: Outbox) -> None:
        self._inventory = inventory
        self._folder = folder
        self._program = program
        self._facts = facts
        self._outbox = outbox
        self._in_row = 0
        self._told: dict[int | None, tuple[str, float]] = {}
        """What was reported, by GPU (None: the node), and when (monotonic)."""
        self._xids = XidWatch(inventory)

    def look(self) -> None:
        """Examine the node, and report what is broken."""
        faults, _ = check.node_faults(self._inventory, self._folder)
        if self._program is not None and (said := fault_by(self._program)) is not None:
            faults.append(said)
        self._in_row = self._in_row + 1 if faults else 0
        broken = self._xids.broken()
        for index, reason in check.faulty_gpus(self._inventory)[0].items():
            broken.setdefault(index, reason)
        if self._in_row >= IN_ROW:
            broken[None] = "; ".join(faults)
        now_s = time.monotonic()
        for gpu, why in broken.items():
            before = self._told.get(gpu)
            if before is not None and before[0] == why and now_s - before[1] < REPEAT_S:
                continue
            if self._outbox.put(self._inventory.node_id, self._facts.faulted(gpu, why)):
                self._told[gpu] = (why, now_s)
                _log.warning("%s: %s", "the node is sick" if gpu is None else f"GPU {gpu} is broken", why)
        self._told = {gpu: told for gpu, told in self._told.items() if gpu in broken}

    def close(self) -> None:
        """Release what it holds of the GPU driver."""
        self._xids.close()


def fault_by(program: Path) -> str | None:
    """Return what the operator's program finds wrong: None if it exits with 0."""
    try:
        ended = run_program([program], timeout_s=PROGRAM_S, said_bytes=MAX_SAID_BYTES)
    except OSError as error:
        return f"{program} cannot be run ({error.strerror})"
    if ended.code is None:
        return f"{program} did not end within {PROGRAM_S:g} s"
    text = " ".join(ended.said.split())[:SHOWN_CHARACTERS]
    return f"{program.name}: {text or f'exit code {ended.code}'}" if ended.code else None
