"""Weights packed as bytes.

Many maps are one block, so that the page can switch between them without a request.
"""

from __future__ import annotations

import base64

import numpy as np

from dragoman.studio.records import Matrix

# Blocks of up to this many cells, such as 48 maps of 512 × 512, are sent with 16 bits per weight.
# Where attention is spread over hundreds of positions, 8 bits can hardly tell a small weight from
# none. One-file pages use 8 bits to stay small.
MAX_FINE_CELLS = 16_000_000


def pack_weights(weights: np.ndarray, max_fine_cells: int = MAX_FINE_CELLS) -> Matrix:
    """Pack weights from 0 to 1, of shape (maps, rows, columns) or (rows, columns).

    Others are clipped to that range.
    """
    block = weights[None] if weights.ndim == 2 else weights
    is_fine = block.size <= max_fine_cells
    largest = 65535 if is_fine else 255
    scaled = np.multiply(block, largest, dtype=np.float32)
    scaled += 0.5
    np.clip(scaled, 0, largest + 0.5, out=scaled)  # in place, since blocks may be large
    data = np.nan_to_num(scaled, copy=False).astype("<u2" if is_fine else "u1").tobytes()
    maps, rows, columns = block.shape
    return Matrix(
        maps=maps,
        rows=rows,
        columns=columns,
        encoding="uint16" if is_fine else "uint8",
        data=base64.b64encode(data).decode("ascii"),
    )


def unpack_weights(matrix: Matrix) -> np.ndarray:
    """Return the weights that were packed, (maps, rows, columns), up to rounding."""
    dtype, largest = ("<u2", 65535) if matrix.encoding == "uint16" else ("u1", 255)
    flat = np.frombuffer(base64.b64decode(matrix.data), dtype=dtype)
    return flat.reshape(matrix.maps, matrix.rows, matrix.columns).astype(np.float32) / largest
