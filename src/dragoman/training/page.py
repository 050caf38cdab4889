"""Pages about several runs: tables of means and intervals, in one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dragoman.evaluation.metrics import SeedsReport
from dragoman.evaluation.metrics.seeds import interval

REPORT = "report.html"

STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#f7f7f5, #131519); --sheet: light-dark(#ffffff, #1a1d23);
  --ink: light-dark(#1b1f25, #e7e9ed); --soft: light-dark(#565e69, #a7afbb); --line: light-dark(#dcdfe4, #333943);
  --accent: light-dark(#1b5ba3, #86b9f2); --accent-soft: light-dark(#e4edf8, #20324a);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  color: var(--ink); background: var(--paper); }
* { box-sizing: border-box; }
body { margin: 0; }
main { max-width: 1100px; margin: 0 auto; padding: 24px; }
h1 { font-size: 1.25rem; margin: 0 0 4px; }
h2 { font-size: 1rem; margin: 0 0 8px; }
p { margin: 0 0 8px; }
.hint { color: var(--soft); font-size: 0.87rem; }
section { background: var(--sheet); border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin: 16px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 0.87rem; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
.figure { font-variant-numeric: tabular-nums; white-space: nowrap; text-align: right; }
tr.best td { background: var(--accent-soft); }
tr.best td:first-child { box-shadow: inset 3px 0 var(--accent); padding-left: 8px; }
tr.out td { color: var(--soft); }
svg { display: block; min-width: 180px; }
svg line { stroke: var(--accent); stroke-width: 2; }
svg circle { fill: var(--accent); }
svg circle.run { fill: var(--soft); fill-opacity: 0.55; }
tr.out svg { opacity: 0.6; }
@media (max-width: 640px) {
  main { padding: 12px; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody { display: block; }
  tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--line); }
  td { display: flex; justify-content: space-between; gap: 16px; padding: 2px 0; border: 0; text-align: right; }
  td::before { content: attr(data-label); color: var(--soft); font-size: 0.87rem; text-align: left; }
  td:empty { display: none; }
  td:first-child { font-weight: 600; }
  tr.best { background: var(--accent-soft); box-shadow: inset 3px 0 var(--accent); padding: 8px; }
  tr.best td:first-child { box-shadow: none; padding-left: 0; }
}
@media print { section { border: 0; padding: 0; } }
"""
DRAWING_WIDTH, DRAWING_HEIGHT = 240, 20


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page. The cells are HTML."""

    title: str
    note: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]  # the class of each row, and its cells


def write_page(title: str, note: str, tables: Sequence[Table]) -> str:
    """Return a page with some tables as HTML."""
    body = "\n".join(_write_table(table) for table in tables)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        f'<p class="hint">{escape(note)}</p>\n{body}\n</main>\n</body>\n</html>\n'
    )


def write_group_page(name: str, side: str, report: SeedsReport) -> str:
    """Return the page of a model that was trained with several seeds."""
    first = next(iter(report.reports.values()))
    metrics = [
        (
            "",
            [
                escape(first.scores[metric].label),
                *mean_cells(each.mean, each.low, each.high, first.scores[metric].unit),
            ],
        )
        for metric, each in report.spreads.items()
    ]
    headline = first.scores[report.headline]
    scores = {run: each.scores[report.headline] for run, each in report.reports.items()}
    span = span_of([(score.low, score.high) for score in scores.values()])
    runs = [
        (
            "",
            [
                escape(run),
                *mean_cells(score.value, score.low, score.high, score.unit),
                draw_interval(score.value, score.low, score.high, span),
            ],
        )
        for run, score in scores.items()
    ]
    return write_page(
        name,
        f"{len(scores)} seeds, {first.rows:,} rows of {side}",
        [
            Table(
                "Means over seeds",
                "With 95 % t-intervals over seeds: how far a mean may move with other seeds.",
                ["metric", "mean", "interval over seeds"],
                metrics,
            ),
            Table(
                f"{headline.label} of each seed",
                "With 95 % intervals over rows: how far the score of one trained model may move with other rows.",
                ["run", headline.label, "interval over rows", ""],
                runs,
            ),
        ],
    )


def mean_cells(value: float, low: float | None, high: float | None, unit: str) -> list[str]:
    """Return the cells of a value and its interval."""
    shown = f"{value:.2f}" + (f" {escape(unit)}" if unit else "")
    return [f'<span class="figure">{shown}</span>', f'<span class="figure">{interval(low, high)}</span>']


def span_of(intervals: Sequence[tuple[float | None, float | None]]) -> tuple[float, float]:
    """Return the smallest range that contains all intervals, never an empty one."""
    ends = [end for pair in intervals for end in pair if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = (high - low) * 0.05 or 1.0
    return low - margin, high + margin


def draw_interval(
    value: float, low: float | None, high: float | None, span: tuple[float, float], runs: Sequence[float] = ()
) -> str:
    """Return a drawing of a value with its interval, and of the single runs behind it."""

    def x(number: float) -> str:
        share = (min(max(number, span[0]), span[1]) - span[0]) / (span[1] - span[0])
        return f"{6 + share * (DRAWING_WIDTH - 12):.1f}"

    middle = DRAWING_HEIGHT / 2
    parts = [f'<circle class="run" cx="{x(run)}" cy="{middle}" r="3"/>' for run in runs]
    if low is not None and high is not None:
        parts.append(f'<line x1="{x(low)}" x2="{x(high)}" y1="{middle}" y2="{middle}"/>')
    parts.append(f'<circle cx="{x(value)}" cy="{middle}" r="4.5"/>')
    label = escape(f"{value:.2f} {interval(low, high)}")
    size = f'width="{DRAWING_WIDTH}" height="{DRAWING_HEIGHT}"'
    return f'<svg {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _write_table(table: Table) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    rows = "\n".join(
        f'<tr class="{kind}">{"".join(map(_write_cell, table.heads, cells))}</tr>' for kind, cells in table.rows
    )
    return (
        f'<section>\n<h2>{escape(table.title)}</h2>\n<p class="hint">{escape(table.note)}</p>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">\n'
        f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n</section>"
    )


def _write_cell(head: str, cell: str) -> str:
    """Return a cell, with the name of its column for screens that are too narrow for a table."""
    return f'<td data-label="{escape(head)}">{f"<span>{cell}</span>" if cell else ""}</td>'
