"""Precision, recall and F1 of every class, and what a guess of the most frequent class would score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.evaluation.metrics.confusion import LABEL_WIDTH, pair_classes
from dragoman.evaluation.metrics.metric import Outputs, References
from dragoman.tables import make_frame, shorten


@dataclass(frozen=True, slots=True)
class ClassScore:
    """How well one class is recognised. Shares are in percent."""

    label: str
    rows: int  # whose reference it is
    outputs: int  # rows for which it was the output
    precision: float  # of its outputs, the share that is right; 0 where it was never output
    recall: float  # of its rows, the share that is found; 0 where there are none
    f1: float  # the harmonic mean of both


@dataclass(frozen=True, slots=True)
class ClassReport:
    """The scores of all classes, and the baseline that a classifier has to beat."""

    majority: str  # the most frequent class of the references
    baseline: float  # %: the accuracy of answering with it always
    macro_f1: float  # %: the mean over the classes of the references
    classes: list[ClassScore]  # the most frequent first

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ClassReport:
        """Return the report that was saved as these values."""
        return cls(**{**plain, "classes": [ClassScore(**each) for each in plain["classes"]]})

    def to_lines(self) -> list[str]:
        """Return the report as the lines of a table."""
        width = max(len("class"), *(len(shorten(each.label, LABEL_WIDTH)) for each in self.classes))
        lines = [
            f"  baseline {self.baseline:.2f} %: always {shorten(self.majority)!r}; macro F1 {self.macro_f1:.2f} %",
            "",
            f"  {'class':<{width}}     rows  precision    recall        F1",
        ]
        for each in self.classes:
            label = shorten(each.label, LABEL_WIDTH)
            shares = f"{each.precision:>9.2f} {each.recall:>9.2f} {each.f1:>9.2f}"
            lines.append(f"  {label:<{width}}  {each.rows:>7,}  {shares}")
        return lines

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per class."""
        return make_frame(
            {"class": each.label, "rows": each.rows, "outputs": each.outputs, "precision": each.precision}
            | {"recall": each.recall, "f1": each.f1}
            for each in self.classes
        )


def measure_classes(outputs: Outputs, references: References, classes: Sequence[str] = ()) -> ClassReport | None:
    """Measure every class, or return None where the targets are no classes."""
    pairs = pair_classes(outputs, references, classes)
    if pairs is None:
        return None
    rows, given = Counter(target for target, _ in pairs), Counter(output for _, output in pairs)
    right = Counter(target for target, output in pairs if target == output)
    known = {*rows, *(label for label in given if label in classes)}
    scores = []
    for label in sorted(known, key=lambda label: (-rows[label], label)):
        hits = right[label]
        precision, recall = 100 * hits / max(1, given[label]), 100 * hits / max(1, rows[label])
        f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
        scores.append(ClassScore(label, rows[label], given[label], precision, recall, f1))
    majority, count = rows.most_common(1)[0]
    real = [each.f1 for each in scores if each.rows]
    return ClassReport(majority, 100 * count / len(pairs), sum(real) / len(real), scores)
