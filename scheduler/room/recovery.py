"""Recovery: a gang that lost its attempt to a failure takes from any small job, so that the rest of it is not idle."""

from gangline.scheduler.room.claims import Bench, Claim, Victims


def victims(claim: Claim, bench: Bench) -> Victims | None:
    """Return who may go. Who is outside his guarantee takes nothing from a queue within its own."""
    if not (claim.gang and claim.job.recovering):
        return None
    standing = claim.standing
    eligible = bench.candidates & bench.by_run(standing.same | standing.borrows | standing.claims) & ~bench.runs.gang
    return Victims("recovery", eligible & bench.unshielded())
