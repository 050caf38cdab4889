"""Rows that went wrong, and two runs beside each other."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record
from dragoman.studio.records.runs import Evaluation, Score


class MetricName(Record):
    name: str
    label: str
    better: Literal["higher", "lower"]
    unit: str


class Span(Record):
    """A stretch of output and reference; where ``same`` is False either may be empty."""

    same: bool
    output: str
    reference: str


class ErrorRow(Record):
    index: int  # from 0
    line: int  # in its file
    source: dict[str, str]  # by name
    references: list[str]
    output: str
    correct: bool
    values: dict[str, float]  # by metric, of this row alone
    log_prob: float  # of the output
    reference_log_prob: float | None  # of the first reference
    source_length: int  # in tokens or positions
    output_length: int  # in tokens
    reference_length: int
    unknown: list[str]  # tokens of a text source that the run does not know
    rare: list[str]  # … that it has seen fewer than ``Errors.rare_below`` times
    spans: list[Span]  # against the closest reference


class Errors(Record):
    run: str
    file: str
    metrics: list[MetricName]  # the headline first
    evaluation: Evaluation
    rare_below: int
    rows: list[ErrorRow]
    left_out: int  # rows that the evaluation counts but that are not listed
    seconds: float


class ComparedScore(Record):
    metric: MetricName
    a: Score
    b: Score
    difference: float  # b - a
    low: float
    high: float
    p_value: float  # two-sided, by paired bootstrap
    verdict: str  # in words


class ComparedRow(Record):
    index: int
    line: int
    source: dict[str, str]
    references: list[str]
    a: str
    b: str
    a_value: float
    b_value: float
    gain: float  # of b over a, by the row's metric; positive is better whichever way the metric goes
    a_spans: list[Span]
    b_spans: list[Span]


class Comparison(Record):
    a: str  # run ids
    b: str
    a_name: str
    b_name: str
    file: str
    count: int  # rows compared
    scores: list[ComparedScore]  # the headline first
    row_metric: MetricName  # what rows are compared by
    wins: int  # rows where b is better
    losses: int
    ties: int
    rows: list[ComparedRow]  # those that differ, most first
    left_out: int
