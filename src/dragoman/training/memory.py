"""Batches that do not fit into memory: they are split, and training goes on.

A batch that failed sets a limit for the size of all later ones. The limit is part of the progress, so
a run that is resumed splits the same batches in the same way.
"""

from __future__ import annotations

import torch

from dragoman.training.parallel.group import deal
from dragoman.types import Batch

_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory")  # of torch's allocators


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there was not enough memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def size_of(batch: Batch) -> int:
    """Return the positions of a batch on all sides, padding included: what its memory grows with."""
    return batch.mask.numel() + sum(source.mask.numel() for source in batch.sources.values())


def split(batch: Batch, limit: int) -> list[Batch]:
    """Return the batch in as many parts as keep each of them within ``limit`` positions; 0: no limit."""
    if not limit or size_of(batch) <= limit:
        return [batch]
    parts = min(len(batch.inputs), -(-size_of(batch) // limit))
    return [deal(batch, index, parts) for index in range(parts)]
