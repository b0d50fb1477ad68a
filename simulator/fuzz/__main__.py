"""`python -m gangline.simulator.fuzz --seeds N`: run randomised worlds, and print a small case for each that fails."""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from gangline.simulator.fuzz.attempts import attempt
from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.plan import Plan, load, to_json
from gangline.simulator.fuzz.scene import Violation
from gangline.simulator.fuzz.shrink import shrunk
from gangline.simulator.fuzz.world import Ran, run

CHUNK = 10
"""Seeds that a process takes at a time."""
TOLD_EVERY = 500
"""Worlds, where no terminal shows how many there were."""


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds, or replay a case; return 0 if every invariant held, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m gangline.simulator.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--replay", type=Path, help="run the case in this file instead")
    parser.add_argument("--keep", type=Path, help="folder for the cases that fail, shrunk (default: here)")
    parser.add_argument("--processes", type=int, default=1, help="how many run at a time")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="the broker for one world in 200")
    parser.add_argument("--virtual", action="store_true", help="leave out those on real logs")
    parser.add_argument("--no-shrink", action="store_true", help="print failing cases as they are")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay)
    return _run(options)


def _replay(path: Path) -> int:
    try:
        ran = run(load(path))
    except Violation as violation:
        _say(f"{path}: {violation}")
        return 1
    _say(f"{path}: every invariant holds; {ran}")
    return 0


def _run(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    seeds = range(options.seed, options.seed + options.seeds)
    totals: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    one = partial(attempt, kafka=options.kafka, real=not options.virtual)
    # Its processes start others, which those of a multiprocessing.Pool may not.
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for done, (seed, found) in enumerate(pool.map(one, seeds, chunksize=CHUNK), start=1):
            if isinstance(found, Ran):
                totals.update(found._asdict())
            else:
                failed.append((seed, found))
                _say(f"\nseed {seed}: {found}")
            if sys.stderr.isatty():
                print(f"\r{done} of {len(seeds)} worlds, {len(failed)} failed", end="", file=sys.stderr)  # noqa: T201
            elif done % TOLD_EVERY == 0:
                _say(f"{done} of {len(seeds)} worlds, {len(failed)} failed")
    for seed in _one_of_each(failed):
        _keep(seed, options.keep or Path(), shrinks=not options.no_shrink)
    took_s = time.monotonic() - began_s
    _say(f"\n{len(seeds)} worlds in {took_s:.0f} s, {len(failed)} failed: {dict(sorted(totals.items()))}")
    return 1 if failed else 0


def _one_of_each(failed: list[tuple[int, str]]) -> list[int]:
    """Return the first seed for each invariant that failed."""
    first: dict[str, int] = {}
    for seed, found in failed:
        first.setdefault(found.partition(", after record")[0], seed)
    return list(first.values())


def _keep(seed: int, folder: Path, *, shrinks: bool) -> None:
    plan: Plan = generate(seed)
    try:
        run(plan)
    except Violation as violation:
        found = violation
    else:
        return
    if shrinks:
        plan, found = shrunk(run, plan, found)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fuzz-{seed}.json"
    path.write_bytes(to_json(plan))
    _say(
        f"\nseed {seed}, shrunk: {found}\n{path.read_text()}\nagain: python -m gangline.simulator.fuzz --replay {path}"
    )


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the command's output


if __name__ == "__main__":
    sys.exit(main())
