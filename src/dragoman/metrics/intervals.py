"""Bootstrap intervals (Koehn 2004): the same seed draws the same rows for every metric and every system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dragoman.errors import UserError
from dragoman.metrics.counting import Counts

RESAMPLES = 1000


def resample(rows: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each row is drawn, (block, rows) at a time: a large corpus does not need all resamples in memory."""
    generator = np.random.default_rng(seed)
    block = max(1, min(resamples, 4_000_000 // rows))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = generator.integers(0, rows, (size, rows)) + rows * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows).astype(np.float64)


def bootstrap(tables: Sequence[Counts], resamples: int, seed: int) -> np.ndarray:
    """(tables, resamples): every table scored on the same resamples."""
    sums: list[list[np.ndarray]] = [[] for _ in tables]
    for weights in resample(len(tables[0].rows), resamples, seed):
        for table, total in zip(tables, sums, strict=True):
            total.append(table.score(weights @ table.rows))
    return np.array([np.concatenate(total) for total in sums])


def interval(samples: np.ndarray, value: float) -> tuple[float, float]:
    """The middle 95 % of the resamples, stretched where need be to hold the measured value itself."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return min(float(low), value), max(float(high), value)


class Comparison(NamedTuple):
    """Two systems on the same rows: second minus first."""

    difference: float
    low: float
    high: float
    p_value: float  # two-sided: how often a resample would put the difference on the other side of zero


def compare(first: Counts, second: Counts, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Paired bootstrap of two tables of the same metric over the same rows."""
    if len(first.rows) != len(second.rows):
        raise UserError(f"cannot pair {len(first.rows)} rows with {len(second.rows)}; compare outputs of the same file")
    samples = bootstrap([first, second], resamples, seed)
    differences = samples[1] - samples[0]
    value = second.of() - first.of()
    tail = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
    return Comparison(value, *interval(differences, value), min(1.0, 2 * (int(tail) + 1) / (resamples + 1)))
