"""A run's outputs beside their references, row by row."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record
from dragoman.studio.records.examples import SourceFile
from dragoman.studio.records.runs import Evaluation


class MetricName(Record):
    """What a metric is called, and which way is better."""

    name: str
    label: str
    better: Literal["higher", "lower"]
    unit: str


class Span(Record):
    """A part of an output and of its reference. Where ``same`` is false, either may be empty."""

    same: bool
    output: str
    reference: str


class ErrorRow(Record):
    """A distinct source with the output and all references."""

    index: int
    """From 0."""
    line: int
    """In its file."""
    source: dict[str, str]
    """By name; of a file, its name without the folder."""
    files: dict[str, SourceFile]
    """The sources that are files, by name."""
    references: list[str]
    output: str
    correct: bool
    values: dict[str, float]
    """Metrics of this row alone, by name."""
    log_prob: float
    """Of the output."""
    reference_log_prob: float | None
    """Of the first reference; None if its probability is zero."""
    search_error: bool
    """Whether the search would have ranked the reference above the output, and lost it."""
    source_length: int
    """In tokens or positions."""
    output_length: int
    """In tokens."""
    reference_length: int
    """In tokens."""
    unknown: list[str]
    """Words of a text source with unknown tokens."""
    rare: list[str]
    """Tokens of a text source that training saw fewer than ``Errors.rare_below`` times."""
    spans: list[Span]
    """Differences from the nearest reference."""


class Errors(Record):
    """The rows of a file, and the evaluation of all of them."""

    run: str
    file: str
    metrics: list[MetricName]
    """The headline metric first."""
    evaluation: Evaluation
    rare_below: int
    rows: list[ErrorRow]
    left_out: int
    """Rows that are evaluated but not listed."""
    seconds: float
