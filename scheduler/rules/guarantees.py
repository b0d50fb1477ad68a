"""Whether what runs below a queue leaves its queues what a change of the tree would guarantee them.

Who takes back a guarantee takes it from preemptible jobs of the queues beside its own. Jobs of the queue above itself,
where the tree has grown below them, and what is not preemptible stay until they end.
"""

from typing import NamedTuple

from gangline.events.amounts import milli_shown
from gangline.events.policy import Policy
from gangline.scheduler.quota import Tree
from gangline.scheduler.state import State
from gangline.scheduler.views.uses import UsesView, quota_is_on, tree_of

MAX_NAMED = 3
"""Jobs and queues that a message names."""


class Stays(NamedTuple):
    """What below a queue would not give way to the guarantees there, of one GPU type."""

    milli: int
    """In use beyond these guarantees."""
    jobs: tuple[str, ...]


def unreachable(state: State, uses: UsesView, before: Policy, after: Policy) -> str | None:
    """Return which guarantees a change lets nobody reach until jobs end that run now, with the numbers; or None."""
    if not quota_is_on(after) or not uses.charges:
        return None
    old, new = tree_of(state, before.queues), tree_of(state, after.queues)
    for path in [path for path in new.paths if new.children[path]]:
        for gpu_type in new.types:
            # What was lacking as much before is not this change's doing, which may well lessen it.
            stays = _stays(new, uses, path, gpu_type)
            if stays.milli and _short(new, uses, path, gpu_type) > max(_short(old, uses, path, gpu_type), 0):
                return _message(new, path, gpu_type, stays)
    return None


def _short(tree: Tree, uses: UsesView, path: str, gpu_type: str) -> int:
    """Return by how much what a queue is guaranteed falls short of what is below it; 0 or less if by nothing."""
    guaranteed = sum(tree.stated_milli(child, gpu_type) for child in tree.children.get(path, ()))
    if not guaranteed:
        return 0
    return guaranteed + _stays(tree, uses, path, gpu_type).milli - tree.limits(path, gpu_type).guarantee_milli


def _stays(tree: Tree, uses: UsesView, path: str, gpu_type: str) -> Stays:
    milli, jobs = 0, list[str]()
    fixed: dict[str, list[tuple[str, int]]] = {child: [] for child in tree.children.get(path, ())}
    for job_id, charge in sorted(uses.charges.items()):
        for queue, of_type, used_milli, preemptible in charge:
            if of_type != gpu_type:
                continue
            if queue == path:
                milli += used_milli
                jobs.append(job_id)
            elif not preemptible and (child := _child(path, queue)) in fixed:
                fixed[child].append((job_id, used_milli))
    for child in sorted(fixed):
        beyond_milli = sum(used_milli for _, used_milli in fixed[child]) - tree.stated_milli(child, gpu_type)
        if beyond_milli > 0:
            milli += beyond_milli
            jobs += [job_id for job_id, _ in fixed[child]]
    return Stays(milli, tuple(jobs))


def _child(path: str, queue: str) -> str:
    """Return the queue right below one that another is, or is in; empty if it is not below it."""
    above = f"{path}/"
    return above + queue[len(above) :].partition("/")[0] if queue.startswith(above) else ""


def _message(tree: Tree, path: str, gpu_type: str, stays: Stays) -> str:
    stated = [(child, milli) for child in tree.children[path] if (milli := tree.stated_milli(child, gpu_type))]
    total, has = sum(milli for _, milli in stated), tree.limits(path, gpu_type).guarantee_milli
    parts = ", ".join(f"'{name}' {milli_shown(milli)}" for name, milli in stated[:MAX_NAMED])
    parts += ", ..." if len(stated) > MAX_NAMED else ""
    named = ", ".join(stays.jobs[:MAX_NAMED]) + (", ..." if len(stays.jobs) > MAX_NAMED else "")
    one = len(stays.jobs) == 1
    jobs = f"a job ({named}) that does" if one else f"{len(stays.jobs)} jobs ({named}) that do"
    left = f"at most {milli_shown(has - stays.milli)}" if has > stays.milli else "nothing"
    return (
        f"the queues below '{path}' would be guaranteed {milli_shown(total)} GPUs of {gpu_type} together ({parts}), "
        f"but {jobs} not give way to them {'uses' if one else 'use'} {milli_shown(stays.milli)}, and '{path}' itself "
        f"is guaranteed {milli_shown(has)}: guarantee them {left} together, or let "
        f"{'that job' if one else 'those jobs'} end first"
    )
