"""The mix: how full and useful a month of four teams is, how soon claims are met, how long gangs and others wait."""

import statistics
import sys
import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from benchmarks.figures import Figure
from benchmarks.log_fold import quiet_collector
from benchmarks.options import Option, seeds
from gangline.events.policy import Policy
from gangline.simulator import mix
from gangline.simulator.mix import Mix
from gangline.simulator.mix_measures import Figures, MixMeasures
from gangline.simulator.world import World

SEEDS = (1, 2, 3, 4, 5)
QUICK_DAYS = mix.SETTLING_DAYS + 2
OPTIONS = (
    Option("load", float, 1.0, "GPU time asked for, as a part of what there is"),
    Option("seeds", seeds, None, "such as 1-5, the default, or 1; with --quick 1"),
)
ASKED = "asked: allocation > 85%, useful > 75%, idle at transitions < 5%"
GOALS: dict[str, tuple[str, float, str]] = {
    "allocation_pct": ("%", 97.5, ASKED),
    "useful_pct": ("%", 93.5, "checkpoints and failures alone leave 96.25% of what is allocated"),
    "idle_pct": ("%", 0.5, ASKED),
    "claims_p99_s": ("s", 600.0, "claims within the guarantee"),
    "gang_claims_p99_s": ("s", 600.0, "gangs' claims within the guarantee"),
    "gangs_first_start_24h_pct": ("%", 99.0, "FIFO 28, skipping ahead 92.6"),
    "gangs_total_24h_pct": ("%", 90.0, "FIFO 28, skipping ahead 91.6"),
    "small_mean_s": ("s", 600.0, "FIFO 175,679, skipping ahead 994"),
    "small_p99_s": ("s", 14_400.0, "FIFO 317,000, skipping ahead 25,600"),
    "preemptions_per_job": ("1", 0.25, "moves count"),
}
"""Unit, goal and reference of each figure; references are of our own experiments (load 1.00, means of five seeds)."""
HIGHER = ("allocation_pct", "useful_pct", "gangs_first_start_24h_pct", "gangs_total_24h_pct")


def figures(*, quick: bool, load: float, seeds: Sequence[int] | None) -> Iterator[Figure]:
    """Yield the means over the seeds."""
    days = QUICK_DAYS if quick else mix.DAYS
    chosen = seeds or (SEEDS[:1] if quick else SEEDS)
    runs = [measured(Mix(seed=seed, load=load, days=days)) for seed in chosen]
    for name, (unit, goal, reference) in GOALS.items():
        values = [float(getattr(run, name)) for run in runs]
        spread = f"; {len(values)} seeds, {min(values):,.4g} to {max(values):,.4g}, {days} days at load {load:.2f}"
        yield Figure(
            name=f"mix.{name}",
            value=statistics.mean(values),
            unit=unit,
            goal=goal,
            better="higher" if name in HIGHER else "lower",
            reference=reference + spread,
        )


def measured(wanted: Mix, policy: Policy | None = None) -> Figures:
    """Run one mix under the default policy, or another one, and tell on stderr what came of it."""
    started_s = time.perf_counter()
    cluster = mix.nodes()
    measures = MixMeasures(cluster, wanted.days)
    with quiet_collector():
        world = World(
            nodes=cluster,
            policy=replace(policy or Policy(), queues=mix.queues()),
            works=mix.works(wanted),
            failures=mix.failures(wanted),
            observers=[measures],
            log_id=f"mix-{wanted.seed}",
        )
        world.run(wanted.days * mix.DAY_US)
    found = measures.figures()
    took_s = time.perf_counter() - started_s
    print(f"  seed {wanted.seed}: {took_s:.0f} s, {world.driver.rounds:,} rounds; {found}", file=sys.stderr)
    return found
