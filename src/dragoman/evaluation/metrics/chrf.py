"""chrF (Popović 2015) as sacrebleu defines it, which keeps the counts of each row to itself."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dragoman.evaluation.metrics.bleu import count_references
from dragoman.evaluation.metrics.metric import Outputs, References, Statistics

ORDER, BETA = 6, 2  # chrF2, sacrebleu's default


def chrf(outputs: Outputs, references: References) -> Statistics:
    """Count the character n-grams of each output, of its closest reference, and of both."""
    from sacrebleu.metrics.chrf import CHRF

    rows = []
    for output, texts in zip(outputs, references, strict=True):
        grams = _count_grams(output)
        candidates = np.array([_match(grams, _count_grams(text)) for text in texts], dtype=np.float64)
        rows.append(candidates[int(_score(candidates).argmax())] if len(texts) > 1 else candidates[0])
    metric = CHRF()
    metric.num_refs = count_references(references)
    return Statistics(np.array(rows), _score, str(metric.get_signature()))


def _count_grams(text: str) -> list[Counter[str]]:
    """Count the n-grams of a text without its white space, for each order."""
    text = "".join(text.split())
    return [Counter(text[i : i + n] for i in range(len(text) - n + 1)) for n in range(1, ORDER + 1)]


def _match(output: list[Counter[str]], reference: list[Counter[str]]) -> list[int]:
    """Return, for each order, the n-grams of the output, of the reference, and of both."""
    row: list[int] = []
    for ours, theirs in zip(output, reference, strict=True):
        matched = sum(min(count, theirs[gram]) for gram, count in ours.items() if gram in theirs)
        row += (ours.total() if theirs else 0, theirs.total(), matched)
    return row


def _score(sums: np.ndarray) -> np.ndarray:
    in_output, in_reference, matched = (sums[:, i::3] for i in range(3))  # (R, orders) each
    both = (in_output > 0) & (in_reference > 0)
    orders = np.maximum(both.sum(axis=1), 1)
    precision = np.where(both, matched / np.maximum(in_output, 1), 0).sum(axis=1) / orders
    recall = np.where(both, matched / np.maximum(in_reference, 1), 0).sum(axis=1) / orders
    weight = BETA**2
    denominator = weight * precision + recall
    return np.asarray(100.0 * (1 + weight) * precision * recall / np.where(denominator > 0, denominator, 1))
