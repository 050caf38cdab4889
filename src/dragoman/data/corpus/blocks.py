"""Work on arrays with one entry for each of many rows, a block of rows at a time.

Numpy makes temporary arrays of 64-bit numbers to index by others. For ten million rows each takes
80 MB; a block's takes little.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 1 << 20  # rows


def blocks(rows: int, size: int = BLOCK) -> Iterator[slice]:
    """Yield slices that cover ``rows`` rows."""
    for begin in range(0, rows, size):
        yield slice(begin, min(begin + size, rows))


def gather(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return ``values[rows]``."""
    found = np.empty(len(rows), dtype=values.dtype)
    for block in blocks(len(rows)):
        found[block] = values[rows[block].astype(np.intp)]
    return found
