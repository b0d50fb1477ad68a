"""A writer that holds the lock of `control`, and kills itself at a chosen moment of its commit, once it is told to.

python -m tests.events.sqlite_dying_writer FOLDER MOMENT
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gangline.events.log import CONTROL, Entry
from gangline.events.sqlite_partition import Partition
from gangline.events.sqlite_queue import Pending


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingPartition(Partition):
    """Runs the real code up to the moment."""

    moment = ""

    def _commit(self, own: Sequence[Entry], pending: Sequence[Pending]) -> tuple[int, list[int]]:
        if self.moment == "before-commit":
            die()
        committed = super()._commit(own, pending)
        if self.moment == "after-commit":
            die()
        return committed

    def _announce(self, pending: Sequence[Pending], firsts: Sequence[int]) -> None:
        if self.moment == "after-first-announcement":
            super()._announce(pending[:1], firsts[:1])
            die()
        super()._announce(pending, firsts)
        if self.moment == "after-announcements":
            die()


def main() -> None:
    """Take the lock, say so, wait for a line, and lead a commit that nobody survives."""
    partition = DyingPartition(Path(sys.argv[1]), CONTROL, 0, busy_timeout_s=10.0)
    partition.moment = sys.argv[2]
    assert partition._lock.try_exclusive()
    print("holding", flush=True)
    sys.stdin.readline()
    partition._lead([Entry(b"dying", b"dying")])


if __name__ == "__main__":
    main()
