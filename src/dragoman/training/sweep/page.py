"""The page of a sweep: its results as a table with drawn intervals."""

from __future__ import annotations

import json
from html import escape

from dragoman.training.page import Table, draw_interval, mean_cells, span_of, write_page
from dragoman.training.sweep.results import CandidateResult, SweepResults, describe_state


def write_sweep_page(results: SweepResults) -> str:
    """Return the results of a sweep as one HTML page."""
    shown = [each.dev for each in results.candidates if each.dev is not None]
    span = span_of([end for each in shown for end in ((each.low, each.high), (min(each.values), max(each.values)))])
    keys = list(results.candidates[0].values)
    has_test = any(each.test is not None for each in results.candidates)
    scale = f"each seed and mean, from {span[0]:.4g} to {span[1]:.4g}" if shown else "each seed and mean"
    heads = ["model", "preset", *keys, f"dev {results.label}", "over seeds", scale]
    heads += [f"test {results.label}", "over seeds"] if has_test else []
    rows = [_row(each, results, keys, span, has_test) for each in results.candidates]
    seeds = f"{results.seeds} seed{'s' if results.seeds > 1 else ''}"
    rungs = ", ".join(f"{updates:,}" for updates in results.rungs if updates is not None)
    note = f"{len(results.candidates)} candidates, {seeds} each" + (
        f"; successive halving after {rungs} updates" if len(results.rungs) > 1 else ""
    )
    explanation = (
        f"Sorted by {results.label} on dev ({results.better} is better). Brackets are 95 % t-intervals over seeds: how "
        "far a mean may move with other seeds. Small dots are single seeds."
    )
    if any(each.state == "stopped" for each in results.candidates):
        explanation += " A candidate that halving stopped has the score of its best validation up to there."
    conclusions = ". ".join(sentence[0].upper() + sentence[1:] for sentence in results.conclusions())
    return write_page(results.name, f"{note}. {conclusions}.", [Table("Results", explanation, heads, rows)])


def _row(
    each: CandidateResult, results: SweepResults, keys: list[str], span: tuple[float, float], has_test: bool
) -> tuple[str, list[str]]:
    state = describe_state(each)
    name = escape(each.name) + (f'<br><span class="hint">{escape(state)}</span>' if state else "")
    cells = [name, escape(each.preset), *(escape(json.dumps(each.values[key], ensure_ascii=False)) for key in keys)]
    if each.dev is None:
        cells += ["–", "–", ""]
    else:
        cells += mean_cells(each.dev.mean, each.dev.low, each.dev.high, results.unit)
        cells.append(draw_interval(each.dev.mean, each.dev.low, each.dev.high, span, each.dev.values))
    if has_test:
        test = each.test
        cells += ["–", "–"] if test is None else mean_cells(test.mean, test.low, test.high, results.unit)
    is_best = each is results.candidates[0] and each.state == "finished"
    return "best" if is_best else "" if each.state == "finished" else "out", cells
