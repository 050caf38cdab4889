"""What a metric is: a name with a label, and statistics of each row that add up to a score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

Outputs: TypeAlias = Sequence[str]
References: TypeAlias = Sequence[Sequence[str]]  # one or more for each output


class Statistics(NamedTuple):
    """The statistics of each row, and how a sum of rows becomes a score."""

    rows: np.ndarray  # (rows, K)
    score: Callable[[np.ndarray], np.ndarray]  # sums (R, K) → scores (R,)
    signature: str = ""  # how the score was computed, as sacrebleu writes it

    def corpus_score(self) -> float:
        """Return the score of all rows together."""
        return float(self.score(self.rows.sum(axis=0, keepdims=True))[0])

    def row_scores(self) -> np.ndarray:
        """Return the score of each row alone, (rows,)."""
        return np.asarray(self.score(self.rows), dtype=float)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by its name in a config, with its label in a table."""

    name: str
    label: str
    better: Literal["higher", "lower"]
    unit: str = "%"
    compute: Callable[[Outputs, References], Statistics] | None = None
    """Computes the statistics from texts. None: the metric needs log-probabilities instead."""


def percentage(sums: np.ndarray) -> np.ndarray:
    """Return column 0 over column 1 in percent; a total of zero counts as one."""
    return np.asarray(100.0 * sums[:, 0] / np.maximum(sums[:, 1], 1))
