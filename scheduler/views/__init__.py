"""Indexes that follow from the state and lie beside it: arrays of the fleet, use per queue, pending jobs in groups.

`Views` is kept from round to round by whoever calls `decide`, and brought up to date from the state's journal; one that
is built anew gives the same decisions (a test compares them). A rule reads `round_.views`, which is as of
`round_.state`. A rule that needs another index adds a class with `rebuild(state)` and `follow(state, what, id)`.
"""

from gangline.scheduler.journal import Link, since
from gangline.scheduler.state import State
from gangline.scheduler.views.nodes import NodesView
from gangline.scheduler.views.pending import PendingView
from gangline.scheduler.views.running import RunningView
from gangline.scheduler.views.uses import UsesView

__all__ = ["Lent", "NodesView", "PendingView", "RunningView", "UsesView", "Views"]


class Views:
    """Every index, as of the state seen last."""

    def __init__(self) -> None:
        self.nodes = NodesView()
        """The fleet as arrays, holds taken off; what is free to be placed on."""
        self.uses = UsesView()
        """The resolved tree of queues, and what each uses and is charged for."""
        self.pending = PendingView()
        """Jobs that wait and may start, in groups; which shapes failed since anything was freed."""
        self.running = RunningView()
        """The attempts that could give way."""
        self._seen: Link | None = None
        self._built = False

    def sync(self, state: State) -> None:
        """Follow the state: by its journal if it descends from the one seen last, else from the beginning."""
        if self._built:
            self.nodes.learn(state)
            if state.changed is self._seen:
                return
        changes = since(state.changed, self._seen) if self._built and self._seen is not None else None
        self._seen, self._built = state.changed, True
        if changes is None:
            self._rebuild(state)
            return
        latest = list(dict.fromkeys(changes))
        latest.reverse()
        if any(what == "policy" for what, _ in latest) or not self.nodes.knows(state, latest):
            self._rebuild(state)
            return
        for what, key in latest:
            self.nodes.follow(state, what, key)
            self.uses.follow(state, what, key)
        for what, key in latest:
            self.pending.follow(state, what, key)
            self.running.follow(state, what, key)
        self.pending.reopen(self.nodes)

    def lent(self, state: State, job_id: str) -> "Lent":
        """Let the indexes be, while this is entered, as if nothing were held for a job, nor its queue charged for it.

        So it is tried whether the job fits with what it has already. The state must be the same all the while.
        """
        return Lent(self, state, job_id)

    def round_over(self, before: State, after: State) -> None:
        """Follow the state to the end of a round; `after` differs from `before` in its journal, which is cut."""
        self.sync(before)
        self._seen = after.changed

    def _rebuild(self, state: State) -> None:
        self.nodes.rebuild(state)
        self.uses.rebuild(state)
        self.pending.rebuild(state, self.nodes)
        self.running.rebuild(state, self.nodes)


class Lent:
    """Indexes from which what one job has held and is charged for is taken off for a while."""

    def __init__(self, views: Views, state: State, job_id: str) -> None:
        self._views = views
        self._state = state
        self._job_id = job_id

    def __enter__(self) -> None:
        self._views.nodes.lend(self._state, self._job_id)
        self._views.uses.uncharge(self._job_id)

    def __exit__(self, *_: object) -> None:
        self._views.nodes.take_back(self._state, self._job_id)
        self._views.uses.follow(self._state, "job", self._job_id)
