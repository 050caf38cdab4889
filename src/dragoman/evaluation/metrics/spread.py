"""Means over several seeds, with intervals by Student's t-distribution.

An interval over rows says how far the score of one trained model may move on other rows. An interval
over seeds says how far the mean may move if the same models are trained with other seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.errors import UserError

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of one score over seeds; a single seed has no interval."""

    values: tuple[float, ...]  # in the order of the seeds
    mean: float
    low: float | None  # 95 % t-interval
    high: float | None
    deviation: float | None  # standard deviation over seeds


class MeanDifference(NamedTuple):
    """The difference of two means (second minus first), with Welch's 95 % interval and p-value."""

    value: float
    low: float
    high: float
    p_value: float  # two-sided


def spread(values: Sequence[float]) -> Spread:
    """Return the mean of the values, its t-interval and their standard deviation."""
    if not values:
        raise UserError("there is nothing to average: no scores were given")
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Spread(tuple(values), mean, None, None, None)
    deviation = statistics.stdev(values)
    half = t_quantile((1 + CONFIDENCE) / 2, len(values) - 1) * deviation / math.sqrt(len(values))
    return Spread(tuple(values), mean, mean - half, mean + half, deviation)


def compare_means(first: Sequence[float], second: Sequence[float]) -> MeanDifference | None:
    """Compare two means by Welch's t-test; None where a side has a single value."""
    if min(len(first), len(second)) < 2:
        return None
    errors = [statistics.variance(values) / len(values) for values in (first, second)]
    difference, squared = statistics.fmean(second) - statistics.fmean(first), sum(errors)
    if squared == 0:  # all seeds of a side agree
        return MeanDifference(difference, difference, difference, 1.0 if difference == 0 else 0.0)
    sizes = (len(first), len(second))
    freedom = squared**2 / sum(error**2 / (size - 1) for error, size in zip(errors, sizes, strict=True))
    scale = math.sqrt(squared)
    half = t_quantile((1 + CONFIDENCE) / 2, freedom) * scale
    p_value = 2 * (1 - t_probability(abs(difference) / scale, freedom))
    return MeanDifference(difference, difference - half, difference + half, min(1.0, max(0.0, p_value)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several comparisons (Holm 1979), in the order given."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def t_probability(t: float, freedom: float) -> float:
    """Return the probability that a t-distributed number is at most ``t``."""
    tail = incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(probability: float, freedom: float) -> float:
    """Return the number that a t-distributed one stays below with this probability, above 0.5."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_probability(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - incomplete_beta(1 - x, b, a)
    tiny = 1e-300
    numerator, denominator = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1), tiny)  # Lentz's method
    value = denominator
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            denominator = 1 / _not_zero(1 + term * denominator, tiny)
            numerator = _not_zero(1 + term / numerator, tiny)
            value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * value / a


def _not_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
