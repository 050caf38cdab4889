"""Character and word error rates: edits over the length of the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dragoman.evaluation.metrics.metric import Outputs, References, Statistics, percentage
from dragoman.evaluation.metrics.words import split_words


def character_error_rate(outputs: Outputs, references: References) -> Statistics:
    """Count the characters to insert, delete or substitute."""
    return _count_edits(outputs, references, lambda text: text)


def word_error_rate(outputs: Outputs, references: References) -> Statistics:
    """Count the words to insert, delete or substitute."""
    return _count_edits(outputs, references, split_words)


def _count_edits(outputs: Outputs, references: References, split: Callable[[str], Sequence[str]]) -> Statistics:
    """Count the edits and the reference length of each row.

    With several references each row is compared with the closest one. "Closest" means: the choice
    of one reference per row whose total edits over total length is lowest. Taking the fewest edits
    row by row would let an additional, shorter reference make the corpus rate worse. The lowest
    ratio of sums is found by Dinkelbach's (1967) iteration.
    """
    from rapidfuzz.distance import Levenshtein

    options: list[np.ndarray] = []  # for each row (references, 2): edits, length
    for output, texts in zip(outputs, references, strict=True):
        units = split(output)
        split_texts = [split(text) for text in texts]
        options.append(np.array([(Levenshtein.distance(units, text), len(text)) for text in split_texts], dtype=float))

    def choose_lowest(cost: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.array([option[int(cost(option).argmin())] for option in options])

    def rate(rows: np.ndarray) -> float:
        return float(percentage(rows.sum(axis=0, keepdims=True))[0]) / 100.0

    # Start with the longest references: if even these are all empty there is nothing to choose.
    rows = choose_lowest(lambda option: -option[:, 1])
    while True:
        current = rate(rows)
        better = choose_lowest(lambda option, current=current: option[:, 0] - current * option[:, 1])  # type: ignore[misc]
        if rate(better) >= current:
            break
        rows = better
    shortest = choose_lowest(lambda option: option[:, 1])  # only matters where every row has an empty reference
    return Statistics(shortest if rate(shortest) < rate(rows) else rows, percentage)
