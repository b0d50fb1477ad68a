"""What holes are worth is learnt anew after so many arrivals; nothing is placed by it before the decision is made."""

from gangline.scheduler.round import Round
from gangline.scheduler.worth import is_due, learn

NAME = "worth"


def decide(round_: Round) -> None:
    """Learn from the jobs admitted so far, if enough came since the last time."""
    policy, seen = round_.policy, round_.state.seen
    if policy is None or NAME not in policy.rules or not is_due(seen, policy.worth_refresh_arrivals):
        return
    free_milli: dict[str, int] = {}
    for node in round_.fleet:
        free_milli[node.gpu_type] = free_milli.get(node.gpu_type, 0) + sum(node.free_milli)
    round_.emit(learn(seen, sorted(free_milli.items())))
