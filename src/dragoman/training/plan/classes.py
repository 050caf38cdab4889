"""Recognise targets that are classes: a few labels, of which every output is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError

MOST_CLASSES = 200
FEWEST_ROWS = 5  # per class, on average
LONGEST_CLASS = 3  # words
NAMED = 6  # classes that a sentence lists


def find_classes(train: Iterable[str], held_out: Iterable[str], target: Tokenizer, wanted: str) -> tuple[str, ...]:
    """Return the classes, the most frequent first; nothing where targets are texts.

    Targets are classes if few short ones occur again and again in training, and the held-out rows have no others.
    ``wanted`` is the setting ``target.classes``.
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
