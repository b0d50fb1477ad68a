"""One HTML page about policies side by side, complete in itself: a table, pictures, and where the trace comes from."""

import html
from collections.abc import Callable, Iterable, Sequence

from gangline.simulator.compare import Result, Summary

COLUMNS: tuple[tuple[str, Callable[[Summary], str]], ...] = (
    ("policy", lambda one: one.policy),
    ("jobs", lambda one: f"{one.jobs:,}"),
    ("ended well", lambda one: f"{one.succeeded:,}"),
    ("failed", lambda one: f"{one.failed:,}"),
    ("rejected", lambda one: f"{one.rejected:,}"),
    ("not ended", lambda one: f"{one.unfinished:,}"),
    ("days", lambda one: f"{one.days:.1f}"),
    ("allocated %", lambda one: f"{one.allocation_pct:.1f}"),
    ("useful %", lambda one: f"{one.useful_pct:.1f}"),
    ("wait mean s", lambda one: f"{one.wait_mean_s:,.0f}"),
    ("wait p50 s", lambda one: f"{one.wait_median_s:,.0f}"),
    ("wait p99 s", lambda one: f"{one.wait_p99_s:,.0f}"),
    ("longest of 32+ GPUs s", lambda one: f"{one.gang_wait_longest_s:,.0f}"),
    ("preemptions a job", lambda one: f"{one.preemptions_per_job:.3f}"),
    ("most of one job", lambda one: f"{one.preemptions_most:,}"),
    ("lost GPU hours", lambda one: f"{one.lost_gpu_hours:,.0f}"),
    ("fragmented %", lambda one: f"{one.fragmented_pct:.0f}"),
)
"""What the table shows, on the terminal and on the page."""

MEANING = (
    "Allocated and useful are parts of what could be used: the smaller of the GPUs that were up and those asked for."
)
"""What a reader of the table has to know."""

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #2e3436; max-width: 1040px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p { margin: .3rem 0 .6rem; } .sub, footer { color: #666; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } svg { max-width: 100%; height: auto; }
"""


def rows(results: Iterable[Result]) -> list[list[str]]:
    """Return the cells of the table, without its heading."""
    return [[show(result.summary) for _, show in COLUMNS] for result in results]


def page(title: str, results: Sequence[Result], *, attribution: str = "") -> str:
    """Return the page. Needs matplotlib (the extra `report`)."""
    from gangline.simulator import charts  # noqa: PLC0415 - matplotlib takes a second, which only a report is worth

    sections = (
        ("Allocation over time, by queue", "GPUs in use, under the line of those that were up.", charts.allocation),
        ("Queueing, by size of job", "From submission, or the end of an attempt, to a binding.", charts.queueing),
        ("Fairness against guarantees", "What each queue had, and waited for, beside its guarantee.", charts.fairness),
        ("Preemptions and lost work", "Lost is what ran and was not saved when an attempt failed.", charts.preemptions),
        ("Fragmentation", "GPUs that were free, and those of them on partly used nodes.", charts.fragmentation),
    )
    body = "\n".join(
        f"<section><h2>{html.escape(heading)}</h2><p class='sub'>{html.escape(text)}</p>\n{draw(results)}</section>"
        for heading, text, draw in sections
    )
    source = f"<p>{html.escape(attribution)}</p>" if attribution else ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name, _ in COLUMNS)
    cells = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(results)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style></head>
<body>
<h1>{html.escape(title)}</h1>
<p class="sub">Simulated by gangline: its own scheduler, in virtual time.</p>
{source}
<div class="wide"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{cells}
</tbody></table></div>
{body}
<footer><p>{MEANING}</p>{source}</footer>
</body></html>
"""
