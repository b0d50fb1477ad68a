"""Reclaim: a job within its queue's guarantee takes back what other queues have borrowed.

The guarantee wins over every bound and shield; these only say who goes last. One who was evicted too often, or has not
run as long as his shield lasts, and one whose own queue does not borrow from its neighbours, go if no others will do.
"""

from gangline.scheduler.room.claims import Bench, Claim, Victims


def victims(claim: Claim, bench: Bench) -> Victims | None:
    """Return who may go."""
    policy, runs, standing = bench.policy, bench.runs, claim.standing
    if claim.waited_us < policy.reclaim_after_us:
        return None
    eligible = bench.candidates & bench.by_run(standing.borrows & standing.claims)
    eligible &= runs.run_us >= policy.reclaim_min_runtime_us
    if not claim.gang:
        eligible &= ~runs.gang
    willing = (
        bench.outlived_shield(policy.reclaim_min_runtime_us)
        & bench.not_too_often()
        & bench.by_run(standing.borrows_below)
    )
    return Victims("reclaim", eligible, ~willing)


def gangs(claim: Claim, bench: Bench) -> Victims | None:
    """Return the borrowing gangs of which one may go for a small job that no eviction of small ones helps.

    One whose roles lie on other nodes is a gang here, too, and one that takes parts of several devices.
    """
    policy, runs, standing = bench.policy, bench.runs, claim.standing
    if claim.gang or claim.waited_us < policy.reclaim_after_us:
        return None
    eligible = bench.candidates & bench.by_run(standing.borrows & standing.claims) & (runs.gang | runs.scattered)
    return Victims("reclaim", eligible & (runs.run_us >= policy.reclaim_min_runtime_us))
