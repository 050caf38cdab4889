"""Compare two systems on the same rows: which is better, how certainly, and where do they differ?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import Decoded, measure
from dragoman.evaluation.metrics import METRICS, Difference, Score, Statistics, paired_bootstrap
from dragoman.evaluation.metrics.bootstrap import SMALLEST_P
from dragoman.evaluation.metrics.report import format_p, state_p
from dragoman.evaluation.rows import (
    OTHER_TOKENS,
    MetricName,
    Span,
    decode_rows,
    diff_texts,
    first_examples,
    have_same_tokens,
    name_metric,
    nearest_reference,
    row_statistics,
)
from dragoman.inference.predictions import texts_of
from dragoman.inference.system import System
from dragoman.tables import html_table, make_frame

SIGNIFICANCE = 0.05  # a p-value below this is called a difference
ROWS_SHOWN = 10  # in the text
TEXT_WIDTH = 100  # characters of a row that the text shows


@dataclass(frozen=True, slots=True)
class ComparedScore:
    """One metric of both systems, and the difference B - A with its 95 % interval."""

    metric: MetricName
    a: Score
    b: Score
    difference: float
    low: float
    high: float
    p_value: float  # two-sided, by paired bootstrap
    verdict: str  # a sentence

    def to_row(self) -> dict[str, Any]:
        """Return the metric as cells of a table."""
        cells = {"metric": self.metric.label, "a": self.a.value, "b": self.b.value, "difference": self.difference}
        return {**cells, "low": self.low, "high": self.high, "p_value": self.p_value}


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One source for which the outputs of the systems differ."""

    index: int  # among the distinct sources, from 0
    line: int  # in its file
    unit: str  # what ``line`` counts: lines of a file, or rows
    source: dict[str, str]
    references: list[str]
    a: str  # outputs
    b: str
    a_value: float  # by the row metric
    b_value: float
    gain: float  # of B over A: positive is better, whichever way the metric goes
    a_spans: list[Span]  # against the nearest reference
    b_spans: list[Span]

    def to_row(self) -> dict[str, Any]:
        """Return the row as cells of a table."""
        cells = {self.unit: self.line, **self.source, "reference": self.references[0], "a": self.a, "b": self.b}
        return {**cells, "a_value": self.a_value, "b_value": self.b_value, "gain": self.gain}


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Two systems, A and B, on the rows of one file."""

    a_name: str
    b_name: str
    file: str
    count: int  # distinct sources
    scores: list[ComparedScore]  # the headline first
    row_metric: MetricName  # the metric that single rows are compared by
    wins: int  # rows where B is better
    losses: int
    ties: int
    rows: list[ComparedRow]  # those that differ, the largest gain or loss first
    left_out: int  # rows that differ and are not in ``rows``
    note: str = ""  # why a metric of the runs is not compared

    def __repr__(self) -> str:
        return f"Comparison({self.a_name} and {self.b_name}, {self.count:,} rows: {self.scores[0].verdict})"

    def _repr_html_(self) -> str:
        rows = [row.to_row() for row in self.rows[:ROWS_SHOWN]]
        differing = f"<p>where they differ most</p>{html_table(rows)}" if rows else ""
        return html_table([score.to_row() for score in self.scores], self.scores[0].verdict) + differing

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per metric."""
        return make_frame(score.to_row() for score in self.scores)

    def rows_to_pandas(self) -> Any:
        """Return a pandas DataFrame of the rows that differ, the largest gain or loss first."""
        return make_frame(row.to_row() for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values, ready for ``json.dumps``."""
        return {"a": self.a_name, "b": self.b_name, **asdict(self)}

    def to_text(self, width: int | None = None) -> str:
        """Return the comparison as a table, with the rows that differ most below it.

        ``width``: columns of the terminal; where the table is wider, each metric has lines of its own.
        """
        lines = [f"{self.count:,} rows of {self.file}; 95 % intervals in brackets", ""]
        lines += [f"  A  {self.a_name}", f"  B  {self.b_name}", ""]
        longest = max(len(score.metric.label) for score in self.scores)
        table = [f"  {'':<{longest}}  {'A':^26}  {'B':^26}  {'B - A':^26}  {'p':>7}"]
        table += [f"  {score.metric.label:<{longest}}  {_cells(score)}" for score in self.scores]
        if width is not None and len(table[0]) > width:
            table = [line for score in self.scores for line in _narrow(score)]
        lines += table
        lines += [f"  {self.note}"] * bool(self.note)
        lines += ["", f"  {self.scores[0].verdict}"]
        lines += [
            f"  by row ({self.row_metric.label}): B better in {self.wins:,}, A better in {self.losses:,}, "
            f"alike in {self.ties:,}",
            "",
        ]
        if self.rows:
            lines.append("  where they differ most")
        for row in self.rows[:ROWS_SHOWN]:
            lines += [
                "",
                f"  {row.unit} {row.line}  {_shorten(' | '.join(row.source.values()))}",
                f"    reference  {_shorten(row.references[0])}",
                f"    A {row.a_value:8.2f}  {_shorten(row.a)}",
                f"    B {row.b_value:8.2f}  {_shorten(row.b)}",
            ]
        return "\n".join(lines).rstrip() + "\n"


def compare_systems(
    a: System,
    b: System,
    examples: Sequence[Example],
    file: str,
    names: tuple[str, str] = ("a", "b"),
    beam: int | None = None,
    limit: int = 500,
    cancelled: Callable[[], bool] | None = None,
) -> Comparison:
    """Decode the same examples with both systems and compare their outputs.

    ``file`` and ``names`` are what the examples and the systems are called; at most ``limit`` rows
    are listed. The metrics are those that fit the first system. ``cancelled`` is that of ``decode``.
    """
    if a.modalities.keys() != b.modalities.keys():
        raise UserError(
            f"{names[0]} reads {', '.join(a.modalities) or 'no source'}, {names[1]} "
            f"{', '.join(b.modalities) or 'no source'}; runs are compared on the same file"
        )
    decoded = decode_rows(a, examples, beam, cancelled), decode_rows(b, examples, beam, cancelled)
    report_a = measure(a, decoded[0])
    report_b = measure(b, decoded[1], headline=report_a.headline, names=list(report_a.scores))
    row_metric = "chrf" if report_a.headline == "bleu" else report_a.headline  # BLEU says little about one sentence
    statistics_a, statistics_b = (
        row_statistics(each, report_a, also=("cer", row_metric, "perplexity")) for each in decoded
    )
    comparable = have_same_tokens(decoded) or report_a.headline == "perplexity"
    scores = [
        _compare_scores(
            name_metric(name, report_a), (score, report_b.scores[name]), (statistics_a[name], statistics_b[name]), names
        )
        for name, score in report_a.scores.items()
        if name in statistics_a and (name != "perplexity" or comparable)
    ]
    values = statistics_a[row_metric].row_scores(), statistics_b[row_metric].row_scores()
    gains = (values[1] - values[0]) * (1 if METRICS[row_metric].better == "higher" else -1)
    edits = np.abs(statistics_a["cer"].row_scores() - statistics_b["cer"].row_scores())
    outputs = texts_of(decoded[0].predictions), texts_of(decoded[1].predictions)
    differing = [index for index in range(len(gains)) if outputs[0][index] != outputs[1][index]]
    differing.sort(key=lambda index: (-abs(gains[index]), -edits[index], index))
    places = first_examples(examples)
    wins, losses = int((gains > 1e-9).sum()), int((gains < -1e-9).sum())
    return Comparison(
        a_name=names[0],
        b_name=names[1],
        file=file,
        count=len(gains),
        scores=scores,
        row_metric=name_metric(row_metric, report_a),
        wins=wins,
        losses=losses,
        ties=len(gains) - wins - losses,
        rows=[
            _compare_row(
                decoded[0],
                bool(a.classes),
                index,
                places[index],
                (outputs[0][index], outputs[1][index]),
                (float(values[0][index]), float(values[1][index])),
                float(gains[index]),
            )
            for index in differing[:limit]
        ],
        left_out=max(0, len(differing) - limit),
        note="" if comparable else OTHER_TOKENS,
    )


def _compare_scores(
    metric: MetricName, scores: tuple[Score, Score], statistics: tuple[Statistics, Statistics], names: tuple[str, str]
) -> ComparedScore:
    difference = paired_bootstrap(*statistics)
    return ComparedScore(metric, *scores, *difference, verdict=_verdict(metric, difference, names))


def _compare_row(
    decoded: Decoded,
    whole: bool,
    index: int,
    example: Example,
    outputs: tuple[str, str],
    values: tuple[float, float],
    gain: float,
) -> ComparedRow:
    references = decoded.references[index]
    spans = [diff_texts(output, nearest_reference(output, references), whole) for output in outputs]
    place = example.line, example.unit
    return ComparedRow(index, *place, decoded.sources[index], references, *outputs, *values, gain, *spans)


def _verdict(metric: MetricName, difference: Difference, names: tuple[str, str]) -> str:
    how = state_p(difference.p_value, difference.p_value <= SMALLEST_P)
    if difference.p_value >= SIGNIFICANCE or difference.value == 0:
        return f"no difference in {metric.label} that these rows could show ({how})"
    better = names[(difference.value > 0) == (metric.better == "higher")]
    return f"{better} is better in {metric.label} ({how})"


def _numbers(score: ComparedScore) -> list[str]:
    """Return the scores of both systems and the difference, each with its interval."""
    return [
        f"{value:8.2f} [{low:.2f}, {high:.2f}]"
        for value, low, high in (
            (score.a.value, score.a.low, score.a.high),
            (score.b.value, score.b.low, score.b.high),
            (score.difference, score.low, score.high),
        )
    ]


def _cells(score: ComparedScore) -> str:
    cells = "  ".join(f"{cell:<26}" for cell in _numbers(score))
    return f"{cells}  {format_p(score.p_value, score.p_value <= SMALLEST_P):>7}"


def _narrow(score: ComparedScore) -> list[str]:
    """Return the lines of one metric for a narrow terminal."""
    a, b, difference = _numbers(score)
    how = state_p(score.p_value, score.p_value <= SMALLEST_P)
    return [f"  {score.metric.label}", f"    A      {a}", f"    B      {b}", f"    B - A  {difference}  {how}"]


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else f"{text[: TEXT_WIDTH - 1]}…"
