"""Bootstrap resampling of rows: confidence intervals, and the paired test of two systems.

The same seed draws the same rows for every metric and every system (Koehn 2004).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dragoman.errors import UserError
from dragoman.evaluation.metrics.metric import Statistics

RESAMPLES = 1000  # for an interval
PAIRED_RESAMPLES = 1999  # for a p-value: with so many, the smallest that can come out is 0.001
SMALLEST_P = 2 / (PAIRED_RESAMPLES + 1)
BLOCK_SIZE = 4_000_000  # weights in memory at a time


class Difference(NamedTuple):
    """The difference of two systems on the same rows (second minus first) and its 95 % interval."""

    value: float
    low: float
    high: float
    p_value: float  # two-sided: how often a resample would put the difference on the other side of zero


def resample(rows: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks (R, rows) that say how often each row is drawn in each of R resamples."""
    generator = np.random.default_rng(seed)
    block = max(1, min(resamples, BLOCK_SIZE // rows))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = generator.integers(0, rows, (size, rows)) + rows * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows).astype(np.float64)


def bootstrap(statistics: Sequence[Statistics], resamples: int, seed: int) -> np.ndarray:
    """Score all statistics on the same resamples, (statistics, resamples)."""
    scores: list[list[np.ndarray]] = [[] for _ in statistics]
    for weights in resample(len(statistics[0].rows), resamples, seed):
        for each, blocks in zip(statistics, scores, strict=True):
            blocks.append(each.score(weights @ each.rows))
    return np.array([np.concatenate(blocks) for blocks in scores])


def confidence_interval(samples: np.ndarray, value: float) -> tuple[float, float]:
    """Return the middle 95 % of the resamples, widened if needed to include the measured value."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return min(float(low), value), max(float(high), value)


def paired_bootstrap(
    first: Statistics, second: Statistics, resamples: int = PAIRED_RESAMPLES, seed: int = 0
) -> Difference:
    """Compare two systems by the same metric on the same rows."""
    if len(first.rows) != len(second.rows):
        raise UserError(f"cannot pair {len(first.rows)} rows with {len(second.rows)}; compare outputs of the same file")
    samples = bootstrap([first, second], resamples, seed)
    return difference_of(samples[0], samples[1], second.corpus_score() - first.corpus_score())


def difference_of(first: np.ndarray, second: np.ndarray, value: float) -> Difference:
    """Return the difference of two systems from their scores on the same resamples, (resamples,)."""
    differences = second - first
    tail = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
    p_value = min(1.0, 2 * (int(tail) + 1) / (len(differences) + 1))
    return Difference(value, *confidence_interval(differences, value), p_value)
