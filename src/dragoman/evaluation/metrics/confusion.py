"""The confusion matrix of targets that are a few classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.evaluation.metrics.metric import Outputs, References
from dragoman.evaluation.metrics.words import split_words

MOST_CLASSES = 30
LONGEST_CLASS = 3  # words
OTHER = "(other)"  # an output that is no class
LABEL_WIDTH = 16  # characters of a label that the table shows


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often each class of the references was output as which label."""

    labels: list[str]  # the classes, then "(other)" if some output is none of them
    counts: list[list[int]]  # [class of the reference][label of the output]
    accuracy: float  # %

    def to_lines(self) -> list[str]:
        """Return the matrix as the lines of a table, with numbers in place of the column labels."""
        shown = [label if len(label) <= LABEL_WIDTH else label[: LABEL_WIDTH - 1] + "…" for label in self.labels]
        width = max(len(label) for label in shown)
        cell = max(4, *(len(str(count)) + 1 for row in self.counts for count in row))
        lines = [
            f"  {len(self.counts)} classes; rows: references, columns: outputs",
            " " * (width + 6) + "".join(f"{number:>{cell}}" for number in range(1, len(self.labels) + 1)),
        ]
        for number, (label, row) in enumerate(zip(shown, self.counts, strict=False), 1):
            cells = "".join(f"{count or '·':>{cell}}" for count in row)
            lines.append(f"  {number:>3} {label:<{width}}{cells}")
        for number, label in enumerate(shown[len(self.counts) :], len(self.counts) + 1):
            what = "outputs that are none of these" if label == OTHER else "only as an output"
            lines.append(f"  {number:>3} {label}: {what}")
        return lines


def pair_classes(outputs: Outputs, references: References, classes: Sequence[str] = ()) -> list[tuple[str, str]] | None:
    """Return the class and the output of each row, or None where the targets are not classes.

    They are if the run is a classifier, which has ``classes``, or if every row has one reference, and
    these are few, short and repeated. Where a row has several references, the one that was output counts.
    """
    if classes:
        return [
            (output if output in options else options[0], output)
            for output, options in zip(outputs, references, strict=True)
        ]
    if any(len(set(options)) > 1 for options in references):
        return None
    targets = [options[0] for options in references]
    distinct = {*targets}
    few = 2 <= len(distinct) <= MOST_CLASSES and 2 * len(distinct) <= len(targets)
    if not few or any(len(split_words(label)) > LONGEST_CLASS for label in distinct):
        return None
    return list(zip(targets, outputs, strict=True))


def count_confusions(outputs: Outputs, references: References, classes: Sequence[str] = ()) -> Confusion | None:
    """Count the outputs for each class, or return None where the targets are not classes, or too many to show."""
    pairs = pair_classes(outputs, references, classes)
    if pairs is None:
        return None
    rows = sorted({target for target, _ in pairs})
    others = sorted({output for _, output in pairs if output in classes} - {*rows})
    labels = [*rows, *others]
    if len(labels) > MOST_CLASSES:
        return None
    if any(output not in labels for _, output in pairs):
        labels.append(OTHER)
    counted = Counter((target, output if output in labels else OTHER) for target, output in pairs)
    counts = [[counted[target, label] for label in labels] for target in rows]
    return Confusion(labels, counts, 100 * sum(target == output for target, output in pairs) / len(pairs))
