"""What was learnt of the jobs that have arrived."""

from msgspec.structs import replace

from gangline.events.decisions import WorthLearnt
from gangline.events.policy import Policy
from gangline.scheduler.journal import put_worth_changed
from gangline.scheduler.state import State
from gangline.scheduler.worth import learnt


def worth_learnt(state: State, decision: WorthLearnt) -> State:
    """Go by what was learnt, and let what arrived before count for less if policy says so."""
    kept_ppm = (state.policy or Policy()).worth_kept_ppm
    return put_worth_changed(replace(state, seen=learnt(state.seen, decision, kept_ppm)))
