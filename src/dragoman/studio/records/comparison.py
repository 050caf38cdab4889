"""Two runs side by side on the same rows."""

from __future__ import annotations

from dragoman.studio.records.base import Record
from dragoman.studio.records.errors import MetricName, Span
from dragoman.studio.records.examples import SourceFile
from dragoman.studio.records.runs import Score


class ComparedScore(Record):
    """A metric of both runs, and the difference with its 95 % confidence interval."""

    metric: MetricName
    a: Score
    b: Score
    difference: float
    """b - a."""
    low: float
    high: float
    p_value: float
    """Two-sided, by paired bootstrap."""
    smallest: bool
    """Whether no smaller p-value could have come out of the resamples."""
    verdict: str
    """The result in words."""


class ComparedRow(Record):
    """A row for which the outputs of the runs differ."""

    index: int
    line: int
    unit: str
    """What the line number counts: "line" or "row"."""
    source: dict[str, str]
    """By name; of a file, its name without the folder."""
    files: dict[str, SourceFile]
    """The sources that are files, by name."""
    references: list[str]
    a: str
    b: str
    a_value: float
    b_value: float
    gain: float
    """Of b over a by the row metric; positive is better, whichever way the metric goes."""
    a_spans: list[Span]
    b_spans: list[Span]


class Comparison(Record):
    """A comparison of two runs, a and b."""

    a: str
    """Id of the run."""
    b: str
    """Id of the run."""
    a_name: str
    b_name: str
    file: str
    count: int
    """Number of rows."""
    scores: list[ComparedScore]
    """The headline metric first."""
    row_metric: MetricName
    """The metric that single rows are compared by."""
    wins: int
    """Rows for which b is better."""
    losses: int
    """Rows for which a is better."""
    ties: int
    rows: list[ComparedRow]
    """Rows whose outputs differ, the largest gain or loss first."""
    left_out: int
    """Rows whose outputs differ but that are not listed."""
