"""Service: a job of a lower level takes from jobs of a higher one, inside a queue and from those who borrow.

A small job takes from small ones only. One that has waited as long as nodes are reserved for it for good takes from all
levels, and from those whose shields have grown: else it would wait for nodes that idle until others are done.
"""

from gangline.scheduler.room.claims import Bench, Claim, Victims, above


def victims(claim: Claim, bench: Bench) -> Victims | None:
    """Return who may go."""
    policy, runs, standing = bench.policy, bench.runs, claim.standing
    eligible = bench.candidates & bench.by_run(standing.same | standing.borrows)
    if claim.starves:
        eligible &= bench.ran_long_enough() & bench.not_too_often()
    else:
        eligible &= (runs.level > claim.level) & bench.unshielded()
    if claim.gang:
        eligible &= runs.gang | (runs.gpus <= policy.small_victim_gpus)
    else:
        eligible &= ~runs.gang & (runs.gpus <= policy.small_victim_gpus)
    # Inside a queue a job gives way to none of a lower priority.
    eligible &= ~above(claim, bench)
    return Victims("service", eligible & ~bench.protected())
