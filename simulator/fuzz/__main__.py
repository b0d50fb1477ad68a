"""`python -m gangline.simulator.fuzz --seeds N`: run randomised worlds, and print a small case for each that fails."""

import argparse
import socket
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from gangline.simulator.fuzz.attempts import KAFKA_EVERY, attempt
from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.plan import Plan, load, to_json
from gangline.simulator.fuzz.scene import Violation
from gangline.simulator.fuzz.shrink import shrunk
from gangline.simulator.fuzz.world import Ran, run

CHUNK = 10
"""Seeds that a process takes at a time."""
TOLD_EVERY = 500
"""Worlds, where no terminal shows how many there were."""
BROKER_S = 5.0
"""How long a broker has to answer before anything starts."""
STARTS_ONE = "deploy/local_kafka.py run"


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds, or replay a case; return 0 if every invariant held, 1 if not. Exits with 2 if called wrongly."""
    parser = argparse.ArgumentParser(prog="python -m gangline.simulator.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--replay", type=Path, help="run the case in this file instead")
    parser.add_argument("--keep", type=Path, help="folder for the cases that fail, shrunk (default: here)")
    parser.add_argument("--processes", type=int, default=1, help="how many run at a time")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="the broker for one world in 200 (without one: on SQLite)")
    parser.add_argument("--virtual", action="store_true", help="leave out those on real logs")
    parser.add_argument("--no-shrink", action="store_true", help="print failing cases as they are")
    options = parser.parse_args(arguments)
    fault = _fault(options)
    if fault is not None:
        parser.error(fault)
    if options.replay is not None:
        return _replay(options.replay)
    return _run(options)


def _fault(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the options, or None."""
    for name, least in (("seeds", 1), ("seed", 0), ("processes", 1)):
        value: int = getattr(options, name)
        if value < least:
            return f"--{name} is {value}: name {least} or more"
    if options.replay is not None and not options.replay.is_file():
        return f"there is no file {options.replay}: name a case that was kept, fuzz-SEED.json"
    if options.kafka is not None and not options.virtual and _on_kafka(options):
        return _broker_fault(options.kafka)
    return None


def _broker_fault(address: str) -> str | None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return f"--kafka is {address!r}: name a broker as HOST:PORT"
    try:
        socket.create_connection((host, int(port)), BROKER_S).close()
    except (OSError, OverflowError) as error:
        return f"no Kafka broker answers at {address} ({error}): start one (python {STARTS_ONE}), or leave --kafka out"
    return None


def _on_kafka(options: argparse.Namespace) -> int:
    """Return how many of the seeds run on Kafka, where there is a broker."""
    return len([seed for seed in _seeds(options) if seed % KAFKA_EVERY == 0])


def _seeds(options: argparse.Namespace) -> range:
    return range(options.seed, options.seed + options.seeds)


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
    seeds = _seeds(options)
    instead = 0 if options.virtual or options.kafka is not None else _on_kafka(options)
    if instead:
        _say(
            f"{_worlds(instead)} (every seed that {KAFKA_EVERY} divides) of {len(seeds)} will run on SQLite instead of "
            f"Kafka, for no broker is given: start one (python {STARTS_ONE}), and name it with --kafka HOST:PORT"
        )
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
    without = f", {instead} on SQLite instead of Kafka" if instead else ""
    _say(f"\n{_worlds(len(seeds))} in {took_s:.0f} s{without}, {len(failed)} failed: {dict(sorted(totals.items()))}")
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


def _worlds(count: int) -> str:
    return "1 world" if count == 1 else f"{count} worlds"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the command's output


if __name__ == "__main__":
    sys.exit(main())
