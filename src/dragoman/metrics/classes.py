"""Few distinct targets are classes: how often each was taken for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.metrics.counting import words

MOST = 30  # classes
LONGEST = 3  # words that a class may have
OTHER = "(other)"  # an output that is no class
WIDTH = 16  # characters of a class that the table shows


@dataclass(frozen=True, slots=True)
class Confusion:
    labels: list[str]  # the classes, as the references have them; where an output was no class, "(other)" is the last
    counts: list[list[int]]  # a row a class of the references, a column a label: how often it was the output
    accuracy: float  # %

    def lines(self) -> list[str]:
        """The table, classes numbered: a row a class of the references, a column an output."""
        shown = [label if len(label) <= WIDTH else label[: WIDTH - 1] + "…" for label in self.labels]
        wide = max(len(label) for label in shown)
        cell = max(4, *(len(str(count)) + 1 for row in self.counts for count in row))
        lines = [
            f"  accuracy {self.accuracy:.2f} %, {len(self.counts)} classes; rows: references, columns: outputs",
            " " * (wide + 6) + "".join(f"{number:>{cell}}" for number in range(1, len(self.labels) + 1)),
        ]
        for number, (label, row) in enumerate(zip(shown, self.counts, strict=False), 1):
            cells = "".join(f"{count or '·':>{cell}}" for count in row)
            lines.append(f"  {number:>3} {label:<{wide}}{cells}")
        if len(shown) > len(self.counts):
            lines.append(f"  {len(shown):>3} {shown[-1]}: outputs that are none of these")
        return lines


def confusion(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Confusion | None:
    """None where the targets are no classes: too many, too long, or hardly any twice."""
    if any(len(set(options)) > 1 for options in references):
        return None
    gold = [options[0] for options in references]
    classes = sorted(set(gold))
    few = 2 <= len(classes) <= MOST and 2 * len(classes) <= len(gold)
    if not few or any(len(words(label)) > LONGEST for label in classes):
        return None
    labels = [*classes, OTHER] if set(hypotheses) - set(classes) else classes
    pairs = Counter(
        (target, output if output in classes else OTHER) for target, output in zip(gold, hypotheses, strict=True)
    )
    counts = [[pairs[target, output] for output in labels] for target in classes]
    right = sum(pairs[label, label] for label in classes)
    return Confusion(labels, counts, 100 * right / len(gold))
