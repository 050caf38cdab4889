"""Perplexity and bits per unit, from log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragoman.evaluation.metrics.metric import Statistics


def perplexity(log_probs: Sequence[float], units: Sequence[int]) -> Statistics:
    """Return the statistics of perplexity per unit, e.g. per token or per word."""

    def score(sums: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(np.minimum(-sums[:, 0] / np.maximum(sums[:, 1], 1), 700.0)))  # e^700: still a float

    return Statistics(_columns(log_probs, units), score)


def bits(log_probs: Sequence[float], units: Sequence[int]) -> Statistics:
    """Return the statistics of bits per unit, e.g. per character."""

    def score(sums: np.ndarray) -> np.ndarray:
        return np.asarray(-sums[:, 0] / np.maximum(sums[:, 1], 1) / np.log(2))

    return Statistics(_columns(log_probs, units), score)


def _columns(log_probs: Sequence[float], units: Sequence[int]) -> np.ndarray:
    return np.column_stack([np.asarray(log_probs, float), np.asarray(units, float)])
