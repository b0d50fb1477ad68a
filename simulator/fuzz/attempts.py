"""One seed after the other, in whatever process: each in virtual time, and some on real logs besides."""

import tempfile
import uuid
from pathlib import Path

from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.real import attempt_on
from gangline.simulator.fuzz.scene import Violation
from gangline.simulator.fuzz.world import Ran, run

SQLITE_EVERY = 50
"""One seed in so many runs on SQLite, too, ..."""
KAFKA_EVERY = 200
"""... and one in so many on Kafka instead, if there is a broker."""
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - kills, unlike power cuts, do not depend on what reached the disk


def attempt(seed: int, kafka: str | None = None, *, real: bool = False) -> tuple[int, Ran | str]:
    """Run the world of a seed; return what it came to, or what did not hold.

    With `real`, one in some runs on a real log, too; `kafka` is host:port of a broker, without which SQLite serves.
    """
    try:
        ran = run(generate(seed))
    except Violation as violation:
        return seed, str(violation)
    found = on_real_log(seed, kafka) if real else None
    return seed, ran if found is None else found


def on_real_log(seed: int, kafka: str | None) -> str | None:
    """Run a seed on Kafka or SQLite if it is one of those that do; return what did not hold, if anything."""
    if seed % SQLITE_EVERY:
        return None
    base = IN_MEMORY if IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=base, prefix="gangline-") as folder:
        on_kafka = kafka is not None and seed % KAFKA_EVERY == 0
        url = f"kafka://{kafka}/fuzz-{uuid.uuid4().hex}" if on_kafka else f"sqlite:{folder}/log"
        found = attempt_on(seed, url, Path(folder))
        return None if found is None else f"{url.partition(':')[0]}: {found}"
