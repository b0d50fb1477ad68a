"""Where a gang goes: all of it, the ranks of its GPUs and those of its roles, or nothing."""

from collections.abc import Mapping

from gangline.events.types import Role, Share
from gangline.scheduler.fit import Fit
from gangline.scheduler.fleet import Flags, Fleet
from gangline.scheduler.parts import Part
from gangline.scheduler.roles import RolePart, Whole, place_whole
from gangline.scheduler.shapes import Shape
from gangline.scheduler.state import Node


def place(fit: Fit, nodes: Mapping[str, Node], shape: Shape, allowed: Flags | None = None) -> tuple[Share, ...] | None:
    """Return the shares of a gang in rank order, or None if it does not fit on the allowed nodes (None: all)."""
    whole = place_whole(fit, shape, allowed)
    return None if whole is None else shares_of(fit.fleet, nodes, shape, whole)


def place_parts(fit: Fit, shape: Shape, allowed: Flags | None = None) -> list[Part]:
    """Return where the ranks of a gang's GPUs go, empty if not all of the gang fits."""
    whole = place_whole(fit, shape, allowed)
    return [] if whole is None else whole.parts


def shares_of(fleet: Fleet, nodes: Mapping[str, Node], shape: Shape, whole: Whole) -> tuple[Share, ...]:
    """Return the shares of a placement, ranks counted on; those of roles come behind."""
    own = Role(name="", ranks=0, gpu_milli=shape.gpu_milli, cpu_milli=shape.cpu_milli, memory_bytes=shape.memory_bytes)
    parts = [RolePart(own, row, columns, max(len(columns), 1)) for row, columns in whole.parts]
    shares = []
    rank = 0
    for role, row, columns, ranks in (*parts, *whole.roles):
        node = nodes[fleet.node_ids[row]]
        shares.append(
            Share(
                node_id=node.node_id,
                address=node.address,
                gpus=tuple(sorted(node.gpus[column] for column in columns)),
                gpu_milli=role.gpu_milli,
                cpu_milli=role.cpu_milli * ranks,
                memory_bytes=role.memory_bytes * ranks,
                first_rank=rank,
                role=role.name,
                rank_count=None if columns else ranks,
            )
        )
        rank += ranks
    return tuple(shares)
