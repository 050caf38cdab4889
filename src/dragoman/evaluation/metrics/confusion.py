"""The confusion matrix of targets that are a few classes."""

from __future__ import annotations

from collections import Counter
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
            f"  accuracy {self.accuracy:.2f} %, {len(self.counts)} classes; rows: references, columns: outputs",
            " " * (width + 6) + "".join(f"{number:>{cell}}" for number in range(1, len(self.labels) + 1)),
        ]
        for number, (label, row) in enumerate(zip(shown, self.counts, strict=False), 1):
            cells = "".join(f"{count or '·':>{cell}}" for count in row)
            lines.append(f"  {number:>3} {label:<{width}}{cells}")
        if len(shown) > len(self.counts):
            lines.append(f"  {len(shown):>3} {shown[-1]}: outputs that are none of these")
        return lines


def count_confusions(outputs: Outputs, references: References) -> Confusion | None:
    """Count the outputs for each class, or return None where the targets are not classes.

    Targets are classes if every row has one reference, and these are few, short and repeated.
    """
    if any(len(set(options)) > 1 for options in references):
        return None
    targets = [options[0] for options in references]
    classes = sorted(set(targets))
    few = 2 <= len(classes) <= MOST_CLASSES and 2 * len(classes) <= len(targets)
    if not few or any(len(split_words(label)) > LONGEST_CLASS for label in classes):
        return None
    labels = [*classes, OTHER] if set(outputs) - set(classes) else classes
    pairs = Counter(
        (target, output if output in classes else OTHER) for target, output in zip(targets, outputs, strict=True)
    )
    counts = [[pairs[target, label] for label in labels] for target in classes]
    correct = sum(pairs[label, label] for label in classes)
    return Confusion(labels, counts, 100 * correct / len(targets))
