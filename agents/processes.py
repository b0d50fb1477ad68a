"""Finds and ends what is left of an attempt whose shim is gone, by the secret token in its processes' environment."""

import time
from pathlib import Path

from gangline.agents import shim

TOKEN = "GANGLINE_ATTEMPT_TOKEN"  # noqa: S105 - the name of the variable; each attempt has a random value
"""Marks every process of an attempt on a node; a process that does not carry it is never killed by the sweep."""

SWEEP_S = 30.0
"""How long one sweep waits for killed processes to disappear; one that the kernel holds is swept again later."""

_PAUSE_S = 0.02


def having(token: str) -> dict[int, shim.Process]:
    """Return the processes that were started with this token in their environment, zombies apart."""
    wanted = f"{TOKEN}={token}".encode()
    found: dict[int, shim.Process] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        pid = int(folder.name)
        known = shim.process(pid)
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or belongs to another user
        if known is not None and wanted in environment.split(b"\0"):
            found[pid] = known
    return found


def sweep(token: str) -> bool:
    """Kill every process with this token; return whether none is left."""
    deadline = time.monotonic() + SWEEP_S
    while left := having(token):
        if time.monotonic() > deadline:
            return False
        for pid, known in left.items():
            shim.kill(pid, known)
        time.sleep(_PAUSE_S)
    return True
