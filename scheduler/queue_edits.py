"""A policy with one queue more, changed or removed: what a command about a queue asks for, as a whole policy."""

from msgspec.structs import replace

from gangline.events.policy import Policy, Queue


def with_queue(policy: Policy, queue: Queue) -> Policy:
    """Return the policy with this queue, in the place of the one with its path if there is one."""
    if any(one.path == queue.path for one in policy.queues):
        queues = tuple(queue if one.path == queue.path else one for one in policy.queues)
    else:
        queues = (*policy.queues, queue)
    return replace(policy, queues=queues)


def without_queue(policy: Policy, path: str) -> Policy:
    """Return the policy without a queue."""
    return replace(policy, queues=tuple(queue for queue in policy.queues if queue.path != path))
