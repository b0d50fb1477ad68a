"""The pictures of a report, drawn by matplotlib as SVG that stands in the page itself.

matplotlib comes with the extra `report`. Policies stand side by side in the same colours everywhere.
"""

import io
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gangline.simulator.compare import Result
from gangline.simulator.series import Series
from gangline.simulator.work import SECOND_US

mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gangline", "font.family": "sans-serif", "font.size": 9})

DAY_US = 24 * 3600 * SECOND_US
HOUR_S = 3600.0
MILLI = 1000.0
WIDTH_INCHES = 10.0
POINTS_MOST = 400
"""Drawn over time; finer bins are put together."""
QUEUES_MOST = 9
"""Shown apart, those with the most GPU time; the rest together."""
POLICY_COLOURS = ("#3465a4", "#c17d11", "#4e9a06", "#a40000", "#75507b", "#2e8b8b")
QUEUE_COLOURS = ("#3465a4", "#73a9dd", "#4e9a06", "#9bd05b", "#c17d11", "#f2bd57", "#a40000", "#e07b6f", "#75507b")
OTHER_COLOUR, LINE_COLOUR, FAINT = "#babdb6", "#2e3436", 0.35


def allocation(results: Sequence[Result]) -> str:
    """Return who had how many GPUs when, a row for each policy, under the line of those that were up."""
    figure = Figure(figsize=(WIDTH_INCHES, 2.2 * len(results) + 0.5), layout="constrained")
    for axes, result in zip(_rows(figure, len(results)), results, strict=True):
        recorder, until_us = result.recorder, _until_us(result)
        order = sorted(recorder.allocated, key=lambda name: (-recorder.allocated[name].mean(until_us), name))
        shown, rest = order[:QUEUES_MOST], order[QUEUES_MOST:]
        days, _ = _over_time(recorder.up, result)
        layers = [_over_time(recorder.allocated[name], result)[1] for name in shown]
        labels, colours = list(shown), list(QUEUE_COLOURS[: len(shown)])
        if rest:
            others = [_over_time(recorder.allocated[name], result)[1] for name in rest]
            layers.append([sum(values) for values in zip(*others, strict=True)])
            labels.append(f"{len(rest)} others")
            colours.append(OTHER_COLOUR)
        axes.stackplot(days, layers, labels=labels, colors=colours, linewidth=0)
        axes.plot(days, _over_time(recorder.up, result)[1], color=LINE_COLOUR, linewidth=0.8, label="up")
        axes.set_ylabel(f"{result.summary.policy}\nGPUs")
        axes.margins(x=0)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7)
    figure.axes[-1].set_xlabel("days")
    return _svg(figure)


def queueing(results: Sequence[Result]) -> str:
    """Return the mean wait by size of job, and the wait that one in a hundred exceeds as a mark above."""
    figure = Figure(figsize=(WIDTH_INCHES, 3.2), layout="constrained")
    axes = figure.subplots()
    sizes = [row.size for row in max((result.by_size for result in results), key=len)]
    for number, result in enumerate(results):
        rows = {row.size: row for row in result.by_size}
        at = [place + _offset(number, len(results)) for place in range(len(sizes))]
        mean = [max(rows[size].mean_s / HOUR_S, 1e-4) if size in rows else 1e-4 for size in sizes]
        p99 = [max(rows[size].p99_s / HOUR_S, 1e-4) if size in rows else 1e-4 for size in sizes]
        axes.bar(at, mean, _width(len(results)), color=_colour(number), label=result.summary.policy)
        axes.plot(at, p99, linestyle="none", marker="_", markersize=14, color=_colour(number))
    axes.set_yscale("log")
    axes.set_ylim(bottom=1 / 3600)
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_xlabel("GPUs of a job")
    axes.set_ylabel("hours of waiting: mean, and p99 (mark)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return _svg(figure)


def fairness(results: Sequence[Result]) -> str:
    """Return what queues had and asked for on the average, beside what they are guaranteed."""
    names = sorted({name for result in results for name in result.recorder.allocated})
    mean = {name: max(result.recorder.allocated[name].mean(_until_us(result)) for result in results) for name in names}
    names = sorted(sorted(names, key=lambda name: (-mean[name], name))[: 2 * QUEUES_MOST])
    figure = Figure(figsize=(WIDTH_INCHES, 3.2), layout="constrained")
    axes = figure.subplots()
    for number, result in enumerate(results):
        recorder, until_us = result.recorder, _until_us(result)
        had = [recorder.allocated[name].mean(until_us) / MILLI for name in names]
        asked = [recorder.pending[name].mean(until_us) / MILLI for name in names]
        at = [place + _offset(number, len(results)) for place in range(len(names))]
        width = _width(len(results))
        axes.bar(at, had, width, color=_colour(number), label=f"{result.summary.policy}: had")
        axes.bar(at, asked, width, bottom=had, color=_colour(number), alpha=FAINT, label="waited for")
    stated = [(place, results[0].guarantees.get(name)) for place, name in enumerate(names)]
    marked = [(place, milli / MILLI) for place, milli in stated if milli is not None]
    for place, gpus in marked:
        axes.hlines(gpus, place - 0.45, place + 0.45, color=LINE_COLOUR, linewidth=1.5)
    if marked:
        axes.plot([], [], color=LINE_COLOUR, linewidth=1.5, label="guaranteed")
    axes.set_xticks(range(len(names)), names, rotation=0 if len(names) <= QUEUES_MOST else 30)
    axes.set_ylabel("GPUs, mean of the whole time")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7)
    return _svg(figure)


def preemptions(results: Sequence[Result]) -> str:
    """Return preemptions by reason, and the work that was lost, over time."""
    figure = Figure(figsize=(WIDTH_INCHES, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    reasons = sorted({reason for result in results for reason in result.recorder.preemptions})
    for number, result in enumerate(results):
        counts = [result.recorder.preemptions.get(reason, 0) for reason in reasons]
        at = [place + _offset(number, len(results)) for place in range(len(reasons))]
        left.barh(at, counts, _width(len(results)), color=_colour(number), label=result.summary.policy)
        days, lost = _over_time(result.recorder.lost, result)
        hours = (days[1] - days[0]) * 24 if len(days) > 1 else 0.0
        total, summed = 0.0, []
        for value in lost:
            total += value * hours
            summed.append(total)
        right.plot(days, summed, color=_colour(number), linewidth=1.2, label=result.summary.policy)
    left.set_yticks(range(len(reasons)), reasons)
    left.set_xlabel("preemptions" if reasons else "no preemptions")
    right.set_xlabel("days")
    right.set_ylabel("GPU hours of work lost so far")
    right.legend(frameon=False, fontsize=7)
    return _svg(figure)


def fragmentation(results: Sequence[Result]) -> str:
    """Return how many GPUs were free, and how many of them on nodes that were partly used."""
    figure = Figure(figsize=(WIDTH_INCHES, 2.6), layout="constrained")
    axes = figure.subplots()
    for number, result in enumerate(results):
        days, free = _over_time(result.recorder.free, result)
        axes.plot(days, free, color=_colour(number), linewidth=0.8, alpha=FAINT, label=f"{result.summary.policy}: free")
        _, broken = _over_time(result.recorder.broken, result)
        axes.plot(days, broken, color=_colour(number), linewidth=1.2, label="on partly used nodes")
    axes.set_xlabel("days")
    axes.set_ylabel("GPUs")
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=7)
    return _svg(figure)


def _rows(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])


def _until_us(result: Result) -> int:
    return max(int(result.summary.days * DAY_US), 1)


def _over_time(series: Series, result: Result) -> tuple[list[float], list[float]]:
    """Return the middles of bins in days, and the means of GPUs in them."""
    values = series.means(_until_us(result))
    step = -(-len(values) // POINTS_MOST)
    merged = [values[first : first + step] for first in range(0, len(values), step)]
    bin_days = result.recorder.bin_us / DAY_US
    days = [(number * step + len(part) / 2) * bin_days for number, part in enumerate(merged)]
    return days, [sum(part) / len(part) / MILLI for part in merged]


def _colour(number: int) -> str:
    return POLICY_COLOURS[number % len(POLICY_COLOURS)]


def _width(count: int) -> float:
    return 0.8 / count


def _offset(number: int, count: int) -> float:
    return (number - (count - 1) / 2) * _width(count)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
