"""Whether indexes that followed the state's journal are those that the state gives."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gangline.events.policy import Policy
from gangline.scheduler.state import State
from gangline.scheduler.views import Views
from gangline.scheduler.views.running import SEVERAL, RunningView

CACHES = frozenset({"failed", "freed", "_shares", "_seen", "_built", "fit", "empty", "_worth", "_could_hold", "_used"})
"""Attributes that depend on what was asked before, or that only lead to others."""


def differences(kept: Views, state: State) -> Iterator[str]:
    """Yield where views that were kept differ from new ones."""
    kept.sync(state)
    new = Views()
    new.sync(state)
    for name, view in sorted(vars(new).items()):
        if isinstance(view, RunningView):
            if state.policy is not None:
                policy = state.policy
                yield from _differ("runs", _runs(vars(kept)[name], state, policy), _runs(view, state, policy))
        elif name not in CACHES:
            yield from _differ(name, vars(kept)[name], view)


def _runs(view: RunningView, state: State, policy: Policy) -> dict[str, Any]:
    """Return what a rule sees of the running attempts, queues by name."""
    runs = view.runs(state, policy)
    found = runs._asdict()
    found["queue"] = [runs.queues[queue] for queue in runs.queue.tolist()]
    del found["queues"]
    everywhere = np.ones(len(state.node_order), np.bool_)
    for span in view.spans(runs, runs.node == SEVERAL, everywhere):
        found[f"span {span.row}"] = (span.nodes.tolist(), span.devices.tolist())
    return found


def _differ(name: str, kept: Any, new: Any) -> Iterator[str]:  # noqa: ANN401 - whatever a view is made of
    if isinstance(new, np.ndarray):
        if not np.array_equal(kept, new):
            yield f"{name} is kept as {kept.tolist()}, and would be {new.tolist()}"
    elif isinstance(new, Mapping):
        if _is_equal(kept, new):
            return
        before, after = _without_nothing(kept), _without_nothing(new)
        for key in [*after, *(key for key in before if key not in after)]:
            yield from _differ(f"{name}[{key!r}]", before.get(key), after.get(key))
    elif hasattr(new, "__dict__") and type(new).__module__.startswith("gangline.scheduler") and vars(new):
        for part in sorted(vars(new)):
            if part not in CACHES:
                yield from _differ(f"{name}.{part}", vars(kept)[part], vars(new)[part])
    elif isinstance(kept, np.ndarray) or kept != new:
        yield f"{name} is kept as {kept!r}, and would be {new!r}"


def _is_equal(kept: Mapping[Any, Any], new: Mapping[Any, Any]) -> bool:
    """Whether two maps are the same for certain; of arrays in them it says nothing."""
    try:
        return bool(kept == new)
    except ValueError:
        return False


def _without_nothing(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a map without what counts for nothing, such as sums that came back to 0."""
    return {
        key: value for key, value in values.items() if isinstance(value, np.ndarray | bool) or value is None or value
    }
