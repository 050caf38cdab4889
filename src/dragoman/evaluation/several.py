"""Compare any number of runs, or groups of seeds, on the same rows: each against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import measure
from dragoman.evaluation.metrics import Report, Statistics
from dragoman.evaluation.metrics.bootstrap import (
    PAIRED_RESAMPLES,
    SMALLEST_P,
    bootstrap,
    confidence_interval,
    difference_of,
)
from dragoman.evaluation.metrics.report import format_p, state_p
from dragoman.evaluation.metrics.seeds import interval
from dragoman.evaluation.metrics.spread import Spread, compare_means, holm, spread
from dragoman.evaluation.rows import OTHER_TOKENS, MetricName, decode_rows, name_metric, row_statistics
from dragoman.inference.system import System
from dragoman.tables import html_table, make_frame

SIGNIFICANCE = 0.05  # a corrected p-value below this is called a difference


@dataclass(frozen=True, slots=True)
class Entrant:
    """What is compared: one run, or the runs of several seeds."""

    name: str
    systems: Sequence[System]


@dataclass(frozen=True, slots=True)
class DifferenceToFirst:
    """How far the score of an entrant is from that of the first, and how certain that is."""

    value: float
    low: float  # 95 % interval
    high: float
    p_value: float  # two-sided, corrected for the number of comparisons (Holm 1979)
    smallest: bool  # whether it is the smallest that the resamples can show
    basis: Literal["rows", "seeds"]  # a paired bootstrap of the rows, or Welch's t-test of the seeds


@dataclass(frozen=True, slots=True)
class EntrantScore:
    """One metric of one entrant."""

    name: str
    value: float  # the mean over seeds
    low: float  # 95 % interval over rows
    high: float
    seeds: Spread
    difference: DifferenceToFirst | None  # None for the first entrant


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric of all entrants, in their order."""

    metric: MetricName
    scores: list[EntrantScore]


@dataclass(frozen=True, slots=True, repr=False)
class SeveralComparison:
    """Several runs or groups of seeds on the rows of one file."""

    file: str
    count: int  # distinct sources
    metrics: list[ComparedMetric]  # the headline first
    note: str = ""  # why a metric of the runs is not compared

    def __repr__(self) -> str:
        headline = self.metrics[0]
        scores = ", ".join(f"{score.name} {score.value:.2f}" for score in headline.scores)
        return f"SeveralComparison({self.count:,} rows, {headline.metric.label}: {scores})"

    def _repr_html_(self) -> str:
        return html_table(self._rows(), f"{self.count:,} rows of {self.file}; 95 % intervals over rows")

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per metric and entrant."""
        return make_frame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {"metric": compared.metric.label, "name": score.name, "value": score.value, "low": score.low}
            | {"high": score.high, "seeds": len(score.seeds.values)}
            | {"difference": score.difference and score.difference.value}
            | {"p_value": score.difference and score.difference.p_value}
            for compared in self.metrics
            for score in compared.scores
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values, ready for ``json.dumps``."""
        return asdict(self)

    def to_text(self) -> str:
        """Return a table for each metric, and what the headline metric says of each entrant."""
        headline = self.metrics[0]
        has_seeds = any(len(score.seeds.values) > 1 for score in headline.scores)
        labels = [chr(ord("A") + index) if index < 26 else f"{index + 1}" for index in range(len(headline.scores))]
        lines = [f"{self.count:,} rows of {self.file}; 95 % intervals in brackets", ""]
        for label, score in zip(labels, headline.scores, strict=True):
            seeds = len(score.seeds.values)
            lines.append(f"  {label:<2} {score.name}" + (f"  (mean of {seeds} seeds)" if seeds > 1 else ""))
        for compared in self.metrics:
            unit = f" ({compared.metric.unit})" if compared.metric.unit else ""
            seeds_heading = f"  {'over seeds':<18}" if has_seeds else ""
            lines += ["", f"  {compared.metric.label}{unit}"]
            lines.append(f"  {'':<2} {'score':>8}  {'over rows':<18}{seeds_heading}  {'difference to A':<27}  {'p':>7}")
            for label, score in zip(labels, compared.scores, strict=True):
                seeds_cell = f"  {interval(score.seeds.low, score.seeds.high):<18}" if has_seeds else ""
                cells = f"{score.value:8.2f}  {interval(score.low, score.high):<18}{seeds_cell}"
                lines.append(f"  {label:<2} {cells}  {_difference_cells(score.difference)}".rstrip())
        lines += ["", *(f"  {sentence}" for sentence in self._conclusions(labels))]
        return "\n".join(lines) + "\n"

    def _conclusions(self, labels: Sequence[str]) -> list[str]:
        headline = self.metrics[0]
        sentences = [self.note] if self.note else []
        for label, score in zip(labels, headline.scores, strict=True):
            each = score.difference
            if each is None:
                continue
            how = state_p(each.p_value, each.smallest)
            if each.p_value >= SIGNIFICANCE or each.value == 0:
                sentences.append(f"{label}: no difference to A in {headline.metric.label} could be shown ({how})")
            else:
                better = (each.value > 0) == (headline.metric.better == "higher")
                sentences.append(
                    f"{label}: {'better' if better else 'worse'} than A in {headline.metric.label} ({how})"
                )
        bases = {score.difference.basis for score in headline.scores if score.difference is not None}
        if "rows" in bases:
            sentences.append(
                "Differences of single runs: paired bootstrap of the rows. They hold for these trained models; "
                "other seeds may differ."
            )
        if "seeds" in bases:
            sentences.append("Differences of groups: Welch's t-test of the means over seeds.")
        if len(headline.scores) > 2:
            sentences.append(
                f"p-values are corrected for the {len(headline.scores) - 1} comparisons of a metric (Holm 1979)."
            )
        return sentences


def compare_several(
    entrants: Sequence[Entrant], examples: Sequence[Example], file: str, beam: int | None = None
) -> SeveralComparison:
    """Decode the same examples with every run, and compare each entrant with the first.

    ``file`` is what the examples are called. The metrics are those that fit the first run.
    """
    if len(entrants) < 2:
        raise UserError("a comparison needs two runs or more")
    first = entrants[0]
    for entrant in entrants:
        for system in entrant.systems:
            if system.modalities.keys() != first.systems[0].modalities.keys():
                raise UserError(
                    f"{first.name} reads {', '.join(first.systems[0].modalities) or 'no source'}, {entrant.name} "
                    f"{', '.join(system.modalities) or 'no source'}; runs are compared on the same file"
                )
    statistics: dict[str, list[list[Statistics]]] = {}  # by metric: for each entrant, those of its systems
    report: Report | None = None
    tokens: set[tuple[int, ...]] = set()  # of the references, by each system
    for place, entrant in enumerate(entrants):
        for system in entrant.systems:
            decoded = decode_rows(system, examples, beam)
            report = report or measure(system, decoded)
            tokens.add(tuple(len(scored.tokens) for scored in decoded.scored))
            for name, each in row_statistics(decoded, report, also=("perplexity",)).items():
                statistics.setdefault(name, [[] for _ in entrants])[place].append(each)
    assert report is not None
    comparable = len(tokens) == 1 or report.headline == "perplexity"
    names = [entrant.name for entrant in entrants]
    metrics = [
        ComparedMetric(name_metric(name, report), _compare_metric(names, statistics[name]))
        for name in report.scores
        if name in statistics and (name != "perplexity" or comparable)
    ]
    return SeveralComparison(file, report.rows, metrics, "" if comparable else OTHER_TOKENS)


def _compare_metric(names: Sequence[str], statistics: Sequence[Sequence[Statistics]]) -> list[EntrantScore]:
    """Compare the entrants by one metric, on the same resamples of the rows."""
    values = [[each.corpus_score() for each in group] for group in statistics]
    samples = bootstrap([each for group in statistics for each in group], PAIRED_RESAMPLES, seed=0)
    ends = np.cumsum([len(group) for group in statistics])
    means = [samples[end - len(group) : end].mean(axis=0) for group, end in zip(statistics, ends, strict=True)]
    spreads = [spread(group) for group in values]
    differences: list[DifferenceToFirst] = []
    for group, each, mean in zip(values[1:], spreads[1:], means[1:], strict=True):
        if (welch := compare_means(values[0], group)) is not None:
            differences.append(DifferenceToFirst(*welch, smallest=False, basis="seeds"))
        else:
            paired = difference_of(means[0], mean, each.mean - spreads[0].mean)
            differences.append(DifferenceToFirst(*paired, smallest=paired.p_value <= SMALLEST_P, basis="rows"))
    corrected = holm([each.p_value for each in differences])
    final = [
        DifferenceToFirst(each.value, each.low, each.high, p_value, each.smallest, each.basis)
        for each, p_value in zip(differences, corrected, strict=True)
    ]
    return [
        EntrantScore(name, each.mean, *confidence_interval(mean, each.mean), each, difference)
        for name, each, mean, difference in zip(names, spreads, means, [None, *final], strict=True)
    ]


def _difference_cells(difference: DifferenceToFirst | None) -> str:
    if difference is None:
        return ""
    cell = f"{difference.value:+8.2f} {interval(difference.low, difference.high)}"
    return f"{cell:<27}  {format_p(difference.p_value, difference.smallest):>7}"
