"""How long an output may get."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from dragoman.config import Section

LONGEST = 10_000_000  # tokens: what no output needs, however long the pairs of training were


class LengthLimits(Section):
    """The longest output: source length times ``ratio``, plus ``extra``, at most ``most``."""

    ratio: float = Field(2.0, ge=0, le=10_000, allow_inf_nan=False)
    extra: int = Field(10, ge=0, le=LONGEST)
    most: int = Field(500, ge=0, le=LONGEST)

    @classmethod
    def of(cls, source: Sequence[int] | np.ndarray, target: Sequence[int] | np.ndarray) -> LengthLimits:
        """Learn the limit from the lengths of the training pairs."""
        longest = int(np.max(target, initial=1))
        if int(np.max(source, initial=0)) == 0:  # a language model: so many tokens after the prompt
            return cls(ratio=0.0, extra=2 * longest, most=2 * longest)
        ratios = np.asarray(target) / np.maximum(np.asarray(source), 1)
        return cls(
            ratio=round(1.25 * float(np.quantile(ratios, 0.999, overwrite_input=True)), 3),
            extra=10,
            most=2 * longest + 10,
        )

    def limit(self, source: int) -> int:
        """Return the most tokens that the output of a source of this length may have."""
        return min(self.most, math.ceil(self.ratio * source) + self.extra)
