"""Where the ranks of a gang's roles go, beside those of its GPUs: all of them, or the gang does not start.

CPU-only ranks go to the gang's own nodes first, then to the partly used ones that hold the most of them. Ranks with a
GPU go one by one to where the node loses least worth. A topology that is required holds for the roles, too.
"""

from typing import NamedTuple

import numpy as np

from gangline.events.types import WHOLE_MILLI, Role
from gangline.scheduler.fit import Ask, Fit
from gangline.scheduler.fleet import Flags, Fleet
from gangline.scheduler.parts import Part, place_gpus
from gangline.scheduler.shapes import Shape


class RolePart(NamedTuple):
    """Ranks of a role on a node, by its row in the fleet, and the columns of their devices, one a rank."""

    role: Role
    row: int
    columns: tuple[int, ...]
    ranks: int


class Whole(NamedTuple):
    """A placement of all that a gang asks for."""

    parts: list[Part]
    roles: list[RolePart]


def place_whole(fit: Fit, shape: Shape, allowed: Flags | None = None) -> Whole | None:
    """Return where all ranks of a gang go, or None if they do not fit on the allowed nodes (None: all)."""
    if not shape.roles:
        parts = place_gpus(fit, shape, allowed)
        return Whole(parts, []) if parts else None
    if shape.required == "node":
        together = fit.fits(_together(shape), allowed)
        allowed = together if allowed is None else allowed & together
    # Where another pod than the first one would hold all of it, that one is tried next.
    for _ in range(max(len(fit.fleet.pods), 1)):
        parts = place_gpus(fit, shape, allowed)
        if not parts:
            return None
        roles = _place_roles(fit, shape, parts, allowed)
        if roles is not None:
            return Whole(parts, roles)
        if shape.required != "pod":
            return None
        elsewhere = fit.fleet.pod_index != fit.fleet.pod_index[parts[0][0]]
        allowed = elsewhere if allowed is None else allowed & elsewhere
    return None


def _together(shape: Shape) -> Ask:
    """Return all that a gang asks for, of one node; fractions that roles ask for are left to the trial."""
    ranks = max(shape.gpus, 1)
    return Ask(
        shape.gpus,
        shape.gpu_milli,
        shape.cpu_milli * ranks + sum(role.cpu_milli * role.ranks for role in shape.roles),
        shape.memory_bytes * ranks + sum(role.memory_bytes * role.ranks for role in shape.roles),
    )


def _place_roles(fit: Fit, shape: Shape, parts: list[Part], allowed: Flags | None) -> list[RolePart] | None:
    fleet = fit.fleet.copy()
    trial = Fit(fleet, fit.worth)
    for row, columns in parts:
        ranks = max(len(columns), 1)
        milli = shape.gpu_milli if columns else 0
        fleet.take(row, columns, milli, shape.cpu_milli * ranks, shape.memory_bytes * ranks)
    mask = _within(fleet, shape, parts, allowed)
    found: list[RolePart] = []
    for role in shape.roles:
        placed = (
            _place_with_gpus(trial, shape, role, mask) if role.gpu_milli else _place_on_cpus(trial, role, parts, mask)
        )
        if placed is None:
            return None
        found += placed
    return found


def _within(fleet: Fleet, shape: Shape, parts: list[Part], allowed: Flags | None) -> Flags | None:
    """Return the nodes that are allowed and as near to the gang as its topology requires."""
    if shape.required == "none":
        return allowed
    rows = [row for row, _ in parts]
    if shape.required == "node":
        near = np.zeros(fleet.size, np.bool_)
        near[rows] = True
    else:
        near = np.isin(fleet.pod_index, fleet.pod_index[rows])
    return near if allowed is None else allowed & near


def _place_on_cpus(trial: Fit, role: Role, parts: list[Part], mask: Flags | None) -> list[RolePart] | None:
    fleet = trial.fleet
    fits = trial.fits(Ask(0, 0, role.cpu_milli, role.memory_bytes), mask)
    holds = np.where(fits, role.ranks, 0)
    for free, asked in ((fleet.cpu_free, role.cpu_milli), (fleet.memory_free, role.memory_bytes)):
        if asked:
            holds = np.minimum(holds, np.maximum(free, 0) // asked)
    own = np.zeros(fleet.size, np.bool_)
    own[[row for row, _ in parts]] = True
    whole = (fleet.whole_free == fleet.devices) & (fleet.devices > 0)
    order = np.lexsort((np.arange(fleet.size), -holds, whole, ~own))
    found: list[RolePart] = []
    left = role.ranks
    for row in order.tolist():
        ranks = min(left, int(holds[row]))
        if not ranks:
            continue
        fleet.take(row, (), 0, role.cpu_milli * ranks, role.memory_bytes * ranks)
        found.append(RolePart(role, row, (), ranks))
        left -= ranks
        if not left:
            return found
    return None


def _place_with_gpus(trial: Fit, shape: Shape, role: Role, mask: Flags | None) -> list[RolePart] | None:
    fleet = trial.fleet
    types = fleet.types_mask(shape.gpu_types)
    if types is not None:
        mask = types if mask is None else mask & types
    found: list[RolePart] = []
    for _ in range(role.ranks):
        choice = trial.choose(Ask(1, role.gpu_milli, role.cpu_milli, role.memory_bytes), mask)
        if choice is None:
            return None
        fleet.take(choice.row, choice.columns, role.gpu_milli, role.cpu_milli, role.memory_bytes)
        before = found[-1] if found else None
        if before is not None and before.row == choice.row and role.gpu_milli == WHOLE_MILLI:
            columns = (*before.columns, *choice.columns)
            found[-1] = RolePart(role, choice.row, columns, len(columns))
        else:
            found.append(RolePart(role, choice.row, choice.columns, 1))
    return found
