"""What of a node is held: by shares of live attempts, and by those that were never reported gone."""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events.types import WHOLE_MILLI, Share
from gangline.scheduler.state import Node, State


def take(node: Node, share: Share, job_id: str) -> Node:
    """Return the node with the share of a job taken from what is free. Devices that it does not have are left out."""
    held = node.held if job_id in node.held else tuple(sorted((*node.held, job_id)))
    return _change(replace(node, held=held), share, -1)


def give_back(node: Node, share: Share, job_id: str) -> Node:
    """Return the node with the share of a job free again. Devices that it no longer has are left out."""
    return _change(replace(node, held=tuple(held for held in node.held if held != job_id)), share, 1)


def give_back_stale(node: Node, job_id: str, attempt: int) -> Node:
    """Return the node with the shares of an ended attempt free again."""
    for one in node.stale:
        if (one.job_id, one.attempt) == (job_id, attempt):
            node = _change(node, one.share, 1)
    left = tuple(one for one in node.stale if (one.job_id, one.attempt) != (job_id, attempt))
    return replace(node, stale=left)


def counted(state: State, node: Node) -> Node:
    """Return the node with what is free counted anew from the shares that hold something of it.

    A device that was missing or broken for a while is still held by the gang that had it.
    """
    node = replace(
        node,
        free_milli=tuple(0 if gpu in node.broken_gpus else WHOLE_MILLI for gpu in node.gpus),
        cpu_free_milli=node.cpu_milli,
        memory_free_bytes=node.memory_bytes,
    )
    for share in _shares(state, node):
        node = _change(node, share, -1)
    return node


def _shares(state: State, node: Node) -> Sequence[Share]:
    found = [one.share for one in node.stale]
    for job_id in node.held:
        attempt = state.jobs[job_id].attempt
        if attempt is not None:
            found += [
                share
                for share, status in zip(attempt.bound.shares, attempt.status, strict=True)
                if share.node_id == node.node_id and not status.gone
            ]
    return found


def _change(node: Node, share: Share, sign: int) -> Node:
    return replace(
        node,
        free_milli=tuple(
            free + sign * share.gpu_milli if gpu in share.gpus and gpu not in node.broken_gpus else free
            for gpu, free in zip(node.gpus, node.free_milli, strict=True)
        ),
        cpu_free_milli=node.cpu_free_milli + sign * share.cpu_milli,
        memory_free_bytes=node.memory_free_bytes + sign * share.memory_bytes,
    )
