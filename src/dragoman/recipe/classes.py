"""Recognise targets that are classes: a few labels, of which every output is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError
from dragoman.tables import shorten

MOST_CLASSES = 200
FEWEST_ROWS = 5  # per class, on average
LONGEST_CLASS = 3  # words
NAMED = 6  # classes that a sentence lists
LISTED = 10  # classes that ``check`` lists with their counts
LABEL_WIDTH = 30  # characters of a label there


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels that training will take as classes, with the number of rows of each, the most frequent first."""

    counts: Mapping[str, int]

    @property
    def share(self) -> float:
        """Return the share of the rows that have the most frequent label."""
        return max(self.counts.values()) / sum(self.counts.values())

    def lines(self) -> list[str]:
        """Return sentences and a small table for people."""
        total, most = sum(self.counts.values()), max(self.counts, key=lambda label: self.counts[label])
        listed = list(self.counts.items())[:LISTED]
        width = max(len(shorten(label, LABEL_WIDTH)) for label, _ in listed)
        lines = [
            f"Classes: the targets are {len(self.counts)} labels, and train makes a classifier of them",
            *(
                f"  {shorten(label, LABEL_WIDTH):<{width}}  {count:>9,}  {count / total:>6.1%}"
                for label, count in listed
            ),
        ]
        if len(self.counts) > LISTED:
            rest = sum(list(self.counts.values())[LISTED:])
            lines.append(f"  and {len(self.counts) - LISTED} more labels, with {rest:,} rows together")
        lines.append(
            f"  always answering {shorten(most, LABEL_WIDTH)!r} would be right for {self.share:.1%} of the rows"
        )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {"counts": dict(self.counts), "majority": next(iter(self.counts)), "share": self.share}


def find_classes(
    train: Iterable[str], held_out: Iterable[str], target: Tokenizer | None, wanted: str
) -> tuple[str, ...]:
    """Return the classes, the most frequent first; nothing where targets are texts.

    Targets are classes if few short ones occur again and again in training, and the held-out rows have no others.
    ``target`` has to be able to write each of them; None: that is not looked at. ``wanted`` is the setting
    ``target.classes``.
    """
    if wanted == "no":
        return ()
    counts: Counter[str] = Counter()
    for text in train:
        counts[text] += 1
        if wanted == "auto" and len(counts) > MOST_CLASSES:  # soon known of millions of rows
            return ()
    if wanted == "auto" and not _are_classes(counts, held_out):
        return ()
    classes = tuple(label for label, _ in counts.most_common())
    if wanted == "yes" and not 2 <= len(classes) <= MOST_CLASSES:
        raise UserError(
            f"target.classes = yes: the training rows have {len(classes):,} distinct targets, but a classifier has 2 "
            f"to {MOST_CLASSES} classes; leave the setting out"
        )
    if target is None:
        return classes
    lost = [label for label in classes if target.decode(target.encode(label)) != label]
    if lost and wanted == "yes":
        raise UserError(
            f"target.classes = yes: the target's tokenizer cannot write the class {lost[0]!r}; "
            "choose another target.tokenizer.kind, e.g. characters"
        )
    return () if lost else classes


def _are_classes(counts: Counter[str], held_out: Iterable[str]) -> bool:
    is_few = 2 <= len(counts) <= MOST_CLASSES and counts.total() >= FEWEST_ROWS * len(counts)
    return (
        is_few
        and all(len(label.split()) <= LONGEST_CLASS for label in counts)
        and all(target in counts for target in held_out)
    )


def describe_classes(classes: Sequence[str]) -> list[str]:
    """Return a sentence about the classes, if there are any."""
    if not classes:
        return []
    more = f" and {len(classes) - NAMED} more" if len(classes) > NAMED else ""
    names = ", ".join(classes[:NAMED]) + more
    return [
        f"classes: the targets are {len(classes)} labels ({names}), and every output is one of them; "
        "--set target.classes=no if outputs may be new"
    ]
