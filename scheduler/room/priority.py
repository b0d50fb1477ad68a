"""Priority: inside a queue, a job of a higher priority takes from jobs of a lower one."""

from gangline.scheduler.room.claims import Bench, Claim, Victims


def victims(claim: Claim, bench: Bench) -> Victims | None:
    """Return who may go."""
    runs = bench.runs
    eligible = bench.candidates & bench.by_run(claim.standing.same) & (runs.priority < claim.job.spec.priority)
    if not claim.gang:
        eligible &= ~runs.gang
    return Victims("priority", eligible & bench.unshielded() & ~bench.protected())
