"""Weights as bytes: many maps in one block, so that the page can switch between them without asking again."""

from __future__ import annotations

import base64

import numpy as np

from dragoman.studio.records import Matrix

# Cells that are sent as 16 bits: 48 maps of 512 × 512 still are, since where attention is spread over hundreds of
# positions 8 bits can tell hardly more than nothing from little. Pages in one file use 8 to stay small.
FINE = 16_000_000


def matrix(weights: np.ndarray, most: int = FINE) -> Matrix:
    """(maps, rows, columns) or (rows, columns), each weight from 0 to 1; what lies outside is cut off."""
    block = weights[None] if weights.ndim == 2 else weights
    fine = block.size <= most
    largest = 65535 if fine else 255
    scaled = np.multiply(block, largest, dtype=np.float32)
    scaled += 0.5
    np.clip(scaled, 0, largest + 0.5, out=scaled)  # in place: blocks may be large
    data = np.nan_to_num(scaled, copy=False).astype("<u2" if fine else "u1").tobytes()
    maps, rows, columns = block.shape
    return Matrix(
        maps=maps, rows=rows, columns=columns, encoding="uint16" if fine else "uint8",
        data=base64.b64encode(data).decode("ascii"),
    )  # fmt: skip


def weights(record: Matrix) -> np.ndarray:
    """What ``matrix`` was given, (maps, rows, columns), as exactly as it was kept."""
    kind, largest = ("<u2", 65535) if record.encoding == "uint16" else ("u1", 255)
    flat = np.frombuffer(base64.b64decode(record.data), dtype=kind)
    return flat.reshape(record.maps, record.rows, record.columns).astype(np.float32) / largest
