"""Whether the tree of queues could ever let a job have its GPUs: what no quota would allow is refused at once."""

from typing import NamedTuple

from msgspec.structs import replace

from gangline.events.amounts import milli_shown
from gangline.events.policy import Policy
from gangline.events.types import JobSpec
from gangline.scheduler.elastic import least
from gangline.scheduler.quota import Tree
from gangline.scheduler.round import Round
from gangline.scheduler.rules.refusals import Refusal, listed, refuse
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.views.uses import quota_is_on


class Bar(NamedTuple):
    """What of a queue no job of this size can pass, even if nothing else ran."""

    path: str
    gpu_type: str
    what: str
    """`ceiling` or `guarantee`."""
    limit_milli: int


def check_leaf(policy: Policy, spec: JobSpec) -> Refusal | None:
    """Refuse a job to a queue that has queues below it: their sums would not add up with jobs beside them."""
    below = [queue.path for queue in policy.queues if queue.path.startswith(f"{spec.queue}/")]
    if not below:
        return None
    taken = {path.rpartition("/")[0]: True for path in (queue.path for queue in policy.queues)}
    leaves = sorted(path for path in below if path not in taken)
    limit = f"queue '{spec.queue}' has queues below it, and only the lowest ones take jobs"
    return refuse("queue", repr(spec.queue), limit, f"name one of {listed(leaves)}")


def check_quota(round_: Round, policy: Policy, spec: JobSpec) -> Refusal | None:
    """Refuse more GPUs than a ceiling, or a guarantee of one that may not borrow, allows for any type that would do."""
    tree, milli = round_.views.uses.tree, shape_of(least(policy, spec)).milli
    if not quota_is_on(policy) or not milli or not tree.types:
        return None
    types = spec.gpu_types or tree.types
    bars = [bar for gpu_type in types if (bar := bar_of(tree, spec, gpu_type, milli)) is not None]
    if not bars:
        return None
    barred = {bar.gpu_type: True for bar in bars}
    free = tuple(gpu_type for gpu_type in types if gpu_type not in barred)
    if free and round_.could_ever_start(replace(spec, gpu_types=free)):
        return None
    # Of several types the one that would take the most says what could be asked for.
    bar = min(bars, key=lambda one: (-one.limit_milli, one.gpu_type))
    alike = all(one._replace(gpu_type=bar.gpu_type) == bar for one in bars) and len(bars) == len(types)
    return _refused(spec, bar, milli, "" if alike and not spec.gpu_types else f" of {bar.gpu_type}")


def bar_of(tree: Tree, spec: JobSpec, gpu_type: str, milli: int) -> Bar | None:
    """Return the tightest limit of a type that this much passes by itself; None if there is none."""
    found: list[Bar] = []
    for path in tree.prefixes(spec.queue):
        limits = tree.limits(path, gpu_type)
        if limits.ceiling_milli is not None and milli > limits.ceiling_milli:
            found.append(Bar(path, gpu_type, "ceiling", limits.ceiling_milli))
        if not spec.preemptible and milli > limits.guarantee_milli:
            found.append(Bar(path, gpu_type, "guarantee", limits.guarantee_milli))
    return min(found, key=lambda bar: (bar.limit_milli, bar.path, bar.what), default=None)


def _refused(spec: JobSpec, bar: Bar, milli: int, of: str) -> Refusal:
    asked, limit = milli_shown(milli), milli_shown(bar.limit_milli)
    raising = f"have it raised (`gangline queue set {bar.path} --{bar.what} N`)"
    if bar.what == "ceiling":
        text = f"queue '{bar.path}' has a ceiling of {limit} GPUs{of}"
        way_out = f"ask for at most {limit}, use another queue, or {raising}"
    else:
        text = (
            f"a job that is not preemptible may not borrow, and queue '{bar.path}' has a guarantee of {limit} GPUs{of}"
        )
        way_out = f"let the job be preemptible, ask for at most {limit}, or {raising}"
    shown = asked if not spec.roles else f"{asked}, those of its roles included"
    return refuse("gpus", shown, text, way_out)
