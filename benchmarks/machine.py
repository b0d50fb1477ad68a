"""Where and of what a figure was measured: the machine and the commit."""

import os
import platform
import subprocess
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader needs to judge a figure."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str


def this_machine() -> Machine:
    """Return the machine that this process may use: `cores` are those it is allowed to run on."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return Machine(
        cpu=cpu,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
    )


def this_commit() -> str:
    """Return the commit of the checkout, with `-dirty` if tracked files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        described = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()
