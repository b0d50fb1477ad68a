"""First start: a gang that was never started and has waited long takes from gangs that have run long."""

from gangline.scheduler.room.claims import Bench, Claim, Victims


def victims(claim: Claim, bench: Bench) -> Victims | None:
    """Return who may go. How long a gang has run counts from its last eviction, over all its failures since.

    Who is outside his guarantee takes nothing from a queue within its own.
    """
    policy, runs, standing = bench.policy, bench.runs, claim.standing
    if not claim.gang or claim.job.attempts or claim.waited_us < policy.first_start_after_us:
        return None
    eligible = bench.candidates & bench.by_run(standing.same | standing.borrows | standing.claims) & runs.gang
    eligible &= runs.since_evicted_us >= policy.first_start_min_runtime_us
    return Victims("first_start", eligible & bench.unshielded() & ~bench.protected())
