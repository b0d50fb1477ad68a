"""What is held for claimants, and which nodes are reserved for gangs."""

from gangline.events.decisions import NodesReserved, ReservationDropped, RoomHeld, RoomReleased
from gangline.scheduler.journal import drop_reserved, drop_room, put_reserved, put_room
from gangline.scheduler.state import State


def room_held(state: State, decision: RoomHeld) -> State:
    """Hold shares for a claimant; they replace what was held for it before."""
    return put_room(state, decision)


def room_released(state: State, decision: RoomReleased) -> State:
    """Hold nothing for it any more."""
    return drop_room(state, decision.job_id)


def nodes_reserved(state: State, decision: NodesReserved) -> State:
    """Reserve nodes for a gang; they replace those reserved for it before."""
    return put_reserved(drop_reserved(state, decision.job_id), decision)


def reservation_dropped(state: State, decision: ReservationDropped) -> State:
    """Reserve nothing for it any more."""
    return drop_reserved(state, decision.job_id)
