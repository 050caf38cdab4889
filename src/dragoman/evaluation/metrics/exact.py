"""Exact match, and the sequence error rate that is its complement."""

from __future__ import annotations

import numpy as np

from dragoman.evaluation.metrics.metric import Outputs, References, Statistics, percentage


def exact_match(outputs: Outputs, references: References) -> Statistics:
    """Count the outputs that equal one of their references."""
    return _share([output in options for output, options in zip(outputs, references, strict=True)])


def sequence_error_rate(outputs: Outputs, references: References) -> Statistics:
    """Count the outputs that equal none of their references."""
    return _share([output not in options for output, options in zip(outputs, references, strict=True)])


def _share(hits: list[bool]) -> Statistics:
    return Statistics(np.array([(hit, 1) for hit in hits], dtype=np.float64), percentage)
