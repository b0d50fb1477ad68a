"""Indexes that follow from the state and lie beside it: arrays of the fleet, use per queue, pending jobs in groups.

`Views` is kept from round to round by whoever calls `decide`, and brought up to date from what the state's journal says;
one that is built anew gives the same decisions (a test compares them). A rule that needs another index adds a class with
`rebuild(state)` and `follow(state, what, id)`.
"""

from gangline.scheduler.journal import since
from gangline.scheduler.state import State
from gangline.scheduler.views.nodes import NodesView
from gangline.scheduler.views.pending import PendingView
from gangline.scheduler.views.uses import UsesView

__all__ = ["NodesView", "PendingView", "UsesView", "Views"]


class Views:
    """Every index, as of the state seen last."""

    def __init__(self) -> None:
        self.nodes = NodesView()
        """The fleet as arrays, holds taken off; what is free to be placed on."""
        self.uses = UsesView()
        """The resolved tree of queues, and what each uses and is charged for."""
        self.pending = PendingView()
        """Jobs that wait and may start, in groups; which shapes failed since anything was freed."""
        self._seen: object = None
        self._fresh = True

    def sync(self, state: State) -> None:
        """Follow the state, which descends from the one seen last, or is another one altogether."""
        if state.changed is self._seen and not self._fresh:
            return
        changes = None if self._fresh or self._seen is None else since(state.changed, self._seen)  # type: ignore[arg-type] # a link
        self._seen, self._fresh = state.changed, False
        if changes is None:
            self._rebuild(state)
            return
        latest = list(dict.fromkeys(changes))
        latest.reverse()
        if any(what in {"policy"} for what, _ in latest) or not self.nodes.knows(state, latest):
            self._rebuild(state)
            return
        for what, key in latest:
            self.nodes.follow(state, what, key)
        for what, key in latest:
            self.uses.follow(state, what, key)
        for what, key in latest:
            self.pending.follow(state, what, key)
        self.pending.reopen(self.nodes)

    def _rebuild(self, state: State) -> None:
        self.nodes.rebuild(state)
        self.uses.rebuild(state)
        self.pending.rebuild(state, self.nodes)
