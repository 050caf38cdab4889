"""The report of an evaluation: scores with intervals, also by source length, and a confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dragoman.evaluation.metrics.calibration import ConfidenceReport
from dragoman.evaluation.metrics.classes import ClassReport
from dragoman.evaluation.metrics.confusion import Confusion
from dragoman.tables import html_table, make_frame


@dataclass(frozen=True, slots=True)
class Score:
    """The value of one metric with its 95 % interval."""

    name: str
    label: str
    value: float
    low: float
    high: float
    better: str  # "higher" or "lower"
    unit: str
    signature: str = ""  # how it was computed

    def to_row(self) -> dict[str, Any]:
        """Return the score as cells of a table."""
        cells = {"metric": self.label, "value": self.value, "low": self.low, "high": self.high}
        return {**cells, "unit": self.unit, "better": self.better}


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """The headline metric of the rows whose source is ``shortest`` to ``longest`` units long."""

    shortest: int
    longest: int
    rows: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """All that an evaluation measured.

    >>> report = dragoman.evaluate("runs/pairs", "test.tsv")
    >>> sorted(report.scores)
    ['cer', 'exact', 'perplexity']
    """

    rows: int  # outputs that were measured: one for each distinct source
    references: int  # of all rows together
    headline: str
    scores: dict[str, Score]  # the headline first
    by_length: list[LengthBucket] = field(default_factory=list)
    length_unit: str = "tokens"
    confusion: Confusion | None = None  # only where the targets are a few classes
    classes: ClassReport | None = None  # only where the targets are classes
    examples: int | None = None  # rows of the data; None: as many as were measured, or unknown
    confidence: ConfidenceReport | None = None  # only where the run has a confidence

    @property
    def value(self) -> float:
        """The headline score."""
        return self.scores[self.headline].value

    def __repr__(self) -> str:
        score = self.scores[self.headline]
        unit = f" {score.unit}" if score.unit else ""
        interval = f"[{score.low:.2f}, {score.high:.2f}]"
        return f"Report({score.label} {score.value:.2f}{unit} {interval}, {self.rows:,} rows)"

    def _repr_html_(self) -> str:
        return html_table([score.to_row() for score in self.scores.values()], f"{self.rows:,} rows; 95 % intervals")

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per metric."""
        return make_frame(score.to_row() for score in self.scores.values())

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, ready for ``json.dumps``."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Report:
        """Return the report that ``to_json`` made these values of; unknown keys are ignored."""
        confusion, classes, confidence = plain.get("confusion"), plain.get("classes"), plain.get("confidence")
        return cls(
            rows=plain["rows"],
            references=plain["references"],
            headline=plain["headline"],
            scores={name: Score(**score) for name, score in plain["scores"].items()},
            by_length=[LengthBucket(**bucket) for bucket in plain["by_length"]],
            length_unit=plain["length_unit"],
            confusion=None if confusion is None else Confusion(**confusion),
            classes=None if classes is None else ClassReport.from_json(classes),
            examples=plain.get("examples"),
            confidence=None if confidence is None else ConfidenceReport.from_json(confidence),
        )

    def to_text(self) -> str:
        """Return the report as a table for people."""
        several = "" if self.references == self.rows else f", {self.references:,} references"
        intervals = "95 % intervals in brackets"
        lines = [f"{self.rows:,} rows{several}; {intervals}", ""]
        if self.examples not in (None, self.rows):
            count = f"{self.examples:,} rows, {self.rows:,} distinct sources{several}"
            lines = [count, "rows with the same source are measured together", intervals, ""]
        width = max(len(score.label) for score in self.scores.values())
        for score in self.scores.values():
            unit = f" {score.unit}" if score.unit else "  "
            lines.append(f"  {score.label:<{width}}  {score.value:8.2f}{unit}  [{score.low:.2f}, {score.high:.2f}]")
        if self.classes is not None:
            lines += ["", *self.classes.to_lines()]
        if self.by_length:
            label = self.scores[self.headline].label
            lines += ["", f"  {label} by source length ({self.length_unit})"]
            ranges = [f"{b.shortest}-{b.longest}" if b.shortest < b.longest else f"{b.longest}" for b in self.by_length]
            width = max(map(len, ranges))
            lines += [
                f"  {lengths:>{width}}  {b.rows:>7,} rows  {b.value:8.2f}  [{b.low:.2f}, {b.high:.2f}]"
                for lengths, b in zip(ranges, self.by_length, strict=True)
            ]
        if self.confusion is not None:
            lines += ["", *self.confusion.to_lines()]
        if self.confidence is not None:
            lines += ["", *self.confidence.to_lines()]
        signatures = [f"  {score.label}: {score.signature}" for score in self.scores.values() if score.signature]
        return "\n".join([*lines, *(["", *signatures] if signatures else [])]) + "\n"


def format_p(p_value: float, smallest: bool = False) -> str:
    """Return a p-value; ``smallest``: no smaller one could have come out of the resamples."""
    if smallest:
        return f"≤ {p_value:.3f}"
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def state_p(p_value: float, smallest: bool = False) -> str:
    """Return a p-value as it stands in a sentence: p = 0.012."""
    text = format_p(p_value, smallest)
    return f"p {text}" if text[0] in "≤<" else f"p = {text}"
