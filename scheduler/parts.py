"""Where the ranks of a gang's GPUs go, so that whole nodes and whole pods stay free for those who need them.

A gang of at most a node's GPUs takes one node, by `fit`. A larger gang takes whole free nodes of one kind, and the
remainder on the lowest other node that has it, in one of the same pods if it can. Whole nodes come from the fullest pod
that holds them, else from the fewest pods. Ties go to the lowest id in natural order. Nodes of one placement have one
GPU type.
"""

import numpy as np

from gangline.events.types import WHOLE_MILLI
from gangline.scheduler.fit import Ask, Fit
from gangline.scheduler.fleet import Flags, Fleet, Ints
from gangline.scheduler.shapes import Shape

Part = tuple[int, tuple[int, ...]]
"""A row of the fleet, and the columns of the devices taken there."""


def place_gpus(fit: Fit, shape: Shape, allowed: Flags | None = None) -> list[Part]:
    """Return where the ranks of a gang go, empty if it does not fit."""
    fleet = fit.fleet
    mask = fleet.types_mask(shape.gpu_types)
    # What is small does not depend on what is allowed just now: else a gang that fits nowhere would fit somewhere.
    widest = fleet.widest_of(shape.gpu_types)
    if allowed is not None:
        mask = allowed if mask is None else mask & allowed
    if shape.nodes is not None and shape.nodes > 1:
        if shape.required == "node":
            return []
        return _place_spread(fit, shape, shape.nodes, mask)
    if shape.nodes == 1 or shape.gpus <= widest:
        ranks = max(shape.gpus, 1)
        ask = Ask(shape.gpus, shape.gpu_milli, shape.cpu_milli * ranks, shape.memory_bytes * ranks)
        choice = fit.choose(ask, mask)
        return [] if choice is None else [(choice.row, choice.columns)]
    if shape.required == "node":
        return []
    return _place_large(fit, shape, mask)


def whole_columns(fleet: Fleet, row: int, gpus: int) -> tuple[int, ...]:
    """Return the columns of the first wholly free devices of a node."""
    return tuple(np.flatnonzero(fleet.free[row] == WHOLE_MILLI)[:gpus].tolist())


def _ask(shape: Shape, ranks: int) -> Ask:
    return Ask(ranks, 1000, shape.cpu_milli * ranks, shape.memory_bytes * ranks)


def _place_spread(fit: Fit, shape: Shape, nodes: int, mask: Flags | None) -> list[Part]:
    """Place the same number of ranks on each of so many nodes; CPU-only ranks, one on each."""
    fleet = fit.fleet
    each = shape.gpus // nodes
    ranks = max(each, 1)
    ask = Ask(each, 1000, shape.cpu_milli * ranks, shape.memory_bytes * ranks)
    fits = fit.fits(ask, mask)
    for type_index in range(len(fleet.types)):
        rows = np.flatnonzero(fits & (fleet.type_index == type_index))
        chosen = choose_rows(fleet, rows, nodes, one_pod=shape.required == "pod")
        if chosen:
            return [(row, whole_columns(fleet, row, each)) for row in chosen]
    return []


def _place_large(fit: Fit, shape: Shape, mask: Flags | None) -> list[Part]:
    fleet = fit.fleet
    devices = fleet.devices if mask is None else fleet.devices[mask]
    sizes = sorted({int(size) for size in np.unique(devices) if size}, reverse=True)
    for size in sizes:
        fits = fit.fits(_ask(shape, size), mask) & (fleet.devices == size)
        for type_index in range(len(fleet.types)):
            rows = np.flatnonzero(fits & (fleet.type_index == type_index))
            parts = _whole_and_rest(fit, shape, rows, mask) if rows.size >= max(shape.gpus // size, 1) else []
            if parts:
                return parts
    return []


def _whole_and_rest(fit: Fit, shape: Shape, rows: Ints, mask: Flags | None) -> list[Part]:
    """Return whole nodes out of `rows`, which are of one kind, and the remainder on another; in one pod if required."""
    fleet = fit.fleet
    whole, remainder = divmod(shape.gpus, int(fleet.devices[rows[0]]))
    one_pod = shape.required == "pod"
    pods: list[int | None] = [None]
    if one_pod:
        counts = np.bincount(fleet.pod_index[rows], minlength=len(fleet.pods))
        # The fullest pod first: that with the fewest candidates which suffice.
        pods = sorted((pod for pod in range(len(counts)) if counts[pod] >= whole), key=lambda pod: (counts[pod], pod))
    for pod in pods:
        within = rows if pod is None else rows[fleet.pod_index[rows] == pod]
        chosen = choose_rows(fleet, within, whole, one_pod=one_pod)
        if not chosen:
            continue
        parts: list[Part] = [(row, whole_columns(fleet, row, int(fleet.devices[row]))) for row in chosen]
        if not remainder:
            return parts
        others = fit.fits(_ask(shape, remainder), mask) & (fleet.type_index == fleet.type_index[rows[0]])
        others[chosen] = False
        near = others & np.isin(fleet.pod_index, fleet.pod_index[chosen])
        last = np.flatnonzero(near if one_pod or near.any() else others)
        if last.size:
            row = int(last[0])
            return [*parts, (row, whole_columns(fleet, row, remainder))]
    return []


def choose_rows(fleet: Fleet, rows: Ints, count: int, *, one_pod: bool = False) -> list[int]:
    """Return `count` of the rows from the fullest pod that holds them, else from the fewest pods; empty if too few.

    They come pod by pod, so that neighbouring ranks are near each other.
    """
    if count <= 0 or rows.size < count:
        return []
    pods = fleet.pod_index[rows]
    left = np.bincount(pods, minlength=len(fleet.pods))
    chosen: list[int] = []
    while len(chosen) < count:
        need = count - len(chosen)
        holding = np.flatnonzero(left >= need)
        if holding.size:
            # The fullest pod is the one with the fewest candidates left that still suffice ...
            pod = int(holding[left[holding].argmin()])
        elif one_pod:
            return []
        else:
            # ... else the emptiest one, so that the fewest pods are touched.
            pod = int(left.argmax())
        left[pod] = 0
        of_pod = rows[pods == pod]
        order = np.argsort(fleet.whole_free[of_pod], kind="stable")
        chosen += of_pod[order][:need].tolist()
    return sorted(chosen, key=lambda row: (int(fleet.pod_index[row]), row))
