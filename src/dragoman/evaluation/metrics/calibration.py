"""How far a confidence can be trusted: calibration error, reliability, and the risk at a coverage.

The expected calibration error (Naeini et al. 2015) is the mean distance between confidence and share
of right outputs, over ten bins of equal width. Even a perfect confidence has one above zero on a
finite number of rows, so the report also has the error that a perfect one would have by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragoman.evaluation.metrics.registry import METRICS, compute_statistics

BINS = 10
COVERAGES = (1.0, 0.9, 0.8, 0.5)  # shares of the outputs, the surest, that are kept
CURVE = 50  # points of the risk-coverage curve
DRAWS = 500  # of outcomes, to learn what a perfect confidence would show


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The outputs whose confidence is from ``low`` to below ``high``."""

    low: float
    high: float
    rows: int
    confidence: float  # their mean; 0 where there are none
    right: float  # the share that is right; 0 where there are none


@dataclass(frozen=True, slots=True)
class CoverageRisk:
    """What is left wrong if only the surest outputs are kept."""

    coverage: float  # the share of the outputs that is kept
    risk: float  # the share of these that is wrong
    threshold: float  # the lowest confidence among them: what ``abstain`` would have to be


@dataclass(frozen=True, slots=True)
class ConfidenceReport:
    """How the confidence of outputs compares with how many of them are right."""

    right: str  # what an output has to be to count as right, in words
    rows: int
    accuracy: float  # the share that is right
    mean: float  # confidence
    error: float  # expected calibration error
    chance: float  # the same of a perfect confidence on as many rows, by simulation
    bins: list[ReliabilityBin]
    risks: list[CoverageRisk]  # at ``COVERAGES``
    curve: list[CoverageRisk]  # at many, ascending, to be drawn
    note: str = ""  # why the confidence may be off

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ConfidenceReport:
        """Return the report that was saved as these values."""
        lists: dict[str, Any] = {
            "bins": [ReliabilityBin(**each) for each in plain["bins"]],
            "risks": [CoverageRisk(**each) for each in plain["risks"]],
            "curve": [CoverageRisk(**each) for each in plain["curve"]],
        }
        return cls(**{**plain, **lists})

    def to_lines(self) -> list[str]:
        """Return the report as the lines of two tables."""
        lines = [
            f"  confidence: the probability that an output {self.right}",
            f"  {100 * self.accuracy:.2f} % are right; mean confidence {100 * self.mean:.2f} %",
            f"  expected calibration error {100 * self.error:.2f} points (a perfect confidence: "
            f"{100 * self.chance:.2f} on as many rows)",
            *([f"  {self.note}"] if self.note else []),
            "",
            "  confidence     rows     mean    right",
        ]
        for each in self.bins:
            if each.rows:
                span = f"{100 * each.low:.0f}-{100 * each.high:.0f} %"
                lines.append(f"  {span:>10}  {each.rows:>7,}  {100 * each.confidence:>7.2f}  {100 * each.right:>7.2f}")
        lines += ["", "  coverage   risk (% wrong)   least confidence"]
        for kept in self.risks:
            least = math.floor(1000 * kept.threshold) / 1000  # never rounded up: --abstain with it keeps these outputs
            lines.append(f"  {100 * kept.coverage:>6.0f} %   {100 * kept.risk:>14.2f}   {least:>16.3f}")
        return lines


def measure_confidence(
    confidences: Sequence[float], right: Sequence[bool], meaning: str, note: str = ""
) -> ConfidenceReport | None:
    """Compare confidences with what was right; None: there are no rows."""
    if not len(confidences):
        return None
    given, hits = np.asarray(confidences, float), np.asarray(right, float)
    numbers = bin_numbers(given)
    return ConfidenceReport(
        right=meaning,
        rows=len(given),
        accuracy=float(hits.mean()),
        mean=float(given.mean()),
        error=calibration_error(given, hits),
        chance=error_by_chance(given),
        bins=[_describe_bin(index, given[numbers == index], hits[numbers == index]) for index in range(BINS)],
        risks=[risk_at(given, hits, coverage) for coverage in COVERAGES],
        curve=[risk_at(given, hits, (index + 1) / CURVE) for index in range(CURVE)],
        note=note,
    )


def judge(
    metric: str, threshold: float | None, outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> np.ndarray:
    """Return which outputs are right, (rows,): equal to a reference, or at least as good as the threshold."""
    if threshold is None:
        return np.array([output in options for output, options in zip(outputs, references, strict=True)], bool)
    scores = compute_statistics(metric, outputs, references).row_scores()
    return np.asarray(scores >= threshold if METRICS[metric].better == "higher" else scores <= threshold)


def bin_numbers(confidences: np.ndarray) -> np.ndarray:
    """Return which bin each confidence is in, from 0."""
    return np.minimum((confidences * BINS).astype(int), BINS - 1)


def calibration_error(confidences: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error, from 0 to 1."""
    gaps = np.bincount(bin_numbers(confidences), right - confidences, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidences))


def error_by_chance(confidences: np.ndarray, seed: int = 0) -> float:
    """Return the mean calibration error if each output were right with exactly the probability of its confidence."""
    generator = np.random.default_rng(seed)
    drawn = [calibration_error(confidences, generator.random(len(confidences)) < confidences) for _ in range(DRAWS)]
    return float(np.mean(drawn))


def risk_at(confidences: np.ndarray, right: np.ndarray, coverage: float) -> CoverageRisk:
    """Return the share of wrong outputs among the surest. Of equally sure ones, each counts by its share."""
    count = max(1, round(coverage * len(confidences)))
    threshold = np.sort(confidences)[::-1][count - 1]
    above, level = confidences > threshold, confidences == threshold
    wrong = 1.0 - right
    at_level = float(wrong[level].mean()) * (count - int(above.sum()))
    return CoverageRisk(coverage, (float(wrong[above].sum()) + at_level) / count, float(threshold))


def ideal_risk(accuracy: float, coverage: float) -> float:
    """Return the risk if all wrong outputs were the least sure ones."""
    return max(0.0, coverage - accuracy) / coverage


def _describe_bin(index: int, confidences: np.ndarray, right: np.ndarray) -> ReliabilityBin:
    means = (float(confidences.mean()), float(right.mean())) if len(right) else (0.0, 0.0)
    return ReliabilityBin(index / BINS, (index + 1) / BINS, len(right), *means)
