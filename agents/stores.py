"""Watches how full stores of checkpoints are, so that jobs that would write much wait while one is nearly full.

A store has one reporter: of several agents that see a shared file system, one is told to watch it.
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from gangline.agents.facts import Facts
from gangline.agents.outbox import Outbox
from gangline.events.types import MILLION, Value
from gangline.schemas.errors import UsageError
from gangline.schemas.launch import folder_of_uri

FULL_PPM = 900_000
"""Used part from which a store is under pressure: above it many file systems become slow, and large jobs fail."""

RELEASED_PPM = 850_000
"""Used part down to which it stays so, lest jobs are let in and held back in turn."""

_log = logging.getLogger(__name__)


class Limits(Value, frozen=True, kw_only=True):
    """From which used part a store is under pressure, and down to which it stays so, in millionths."""

    full_ppm: int = FULL_PPM
    released_ppm: int = RELEASED_PPM


class StoreWatch:
    """Reports each store at the start, and then when it changes. Belongs to one thread."""

    def __init__(self, stores: Sequence[str], limits: Limits, facts: Facts, outbox: Outbox) -> None:
        """Take folders, or their file:/// URIs. Raises UsageError for neither, or for limits that cannot be."""
        if not 0 <= limits.released_ppm <= limits.full_ppm <= MILLION:
            raise UsageError(
                f"a store is full from {limits.full_ppm / 1e4:g}% on and released at {limits.released_ppm / 1e4:g}%: "
                "name parts of 0 to 100%, the second not above the first"
            )
        self._folders = [_folder_of(one) for one in stores]
        self._limits = limits
        self._facts = facts
        self._outbox = outbox
        self._told: dict[Path, bool] = {}
        self._unreadable: set[Path] = set()

    def look(self) -> None:
        """Look at every store, and report what changed."""
        for folder in self._folders:
            try:
                used_ppm = used_part_ppm(folder)
            except OSError as error:
                if folder not in self._unreadable:
                    _log.warning("how full %s is cannot be told: %s", folder, error)
                self._unreadable.add(folder)
                continue
            self._unreadable.discard(folder)
            before = self._told.get(folder)
            limit = self._limits.released_ppm if before else self._limits.full_ppm
            pressed = used_ppm >= limit
            if pressed == before:
                continue
            fact = self._facts.storage(folder.as_uri(), pressed=pressed, used_ppm=used_ppm)
            if self._outbox.put(str(folder), fact):
                self._told[folder] = pressed
                if pressed or before:
                    state = "nearly full: jobs that write much wait" if pressed else "no longer nearly full"
                    _log.warning("%s is used by %.1f%%, %s", folder, used_ppm / 1e4, state)


def _folder_of(store: str) -> Path:
    if "://" not in store:
        return Path(store).absolute()
    try:
        return folder_of_uri(store)
    except UsageError:
        raise UsageError(
            f"--store {store}: only of a folder can be told how full it is: name one, as /shared/checkpoints or "
            "file:///shared/checkpoints"
        ) from None


def used_part_ppm(folder: Path) -> int:
    """Return the used part of the file system that a folder is on, or will be, as `df` counts. Raises OSError."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    usage = shutil.disk_usage(there)
    return usage.used * MILLION // max(1, usage.used + usage.free)
