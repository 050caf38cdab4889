"""Batches in the order of training, without end; where they come from files, made ahead of need.

What a batch holds depends on the seed, the epoch and its rows alone, so training is the same with
any number of loaders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, tee

import numpy as np

from dragoman.data.corpus.batching import Encoded
from dragoman.data.corpus.loader import Readers
from dragoman.data.corpus.running import RunningText
from dragoman.process.devices import available_cores
from dragoman.recipe.training import TrainingConfig
from dragoman.types import Batch


class BatchLoader:
    """Yields batches from a position in an epoch on. ``close`` ends the processes that read ahead."""

    def __init__(
        self,
        data: Encoded | RunningText,
        config: TrainingConfig,
        batches: Callable[[int], list[np.ndarray]],
        epoch: int,
        position: int,
    ) -> None:
        """Start before batch ``position`` of ``epoch``. ``batches``: the rows of an epoch's batches."""
        self.data, self.seed, self.batches = data, config.seed, batches
        loaders = count_loaders(data, config.loaders)
        self.readers = Readers(data.files, loaders) if isinstance(data, Encoded) and loaders else None
        self._upcoming = self._make_batches(epoch, position)

    def take(self, number: int) -> list[Batch]:
        """Return the next batches."""
        return [next(self._upcoming) for _ in range(number)]

    def close(self) -> None:
        if self.readers is not None:
            self.readers.close()

    def _make_batches(self, epoch: int, position: int) -> Iterator[Batch]:
        order = self._order(epoch, position)
        if self.readers is None or not isinstance(self.data, Encoded):
            for epoch, rows in order:
                yield self.data.batch(rows, (self.seed, epoch))
            return
        ahead, behind = tee(order)
        loaded = self.readers.run((rows.tolist(), (self.seed, epoch)) for epoch, rows in ahead)
        for (epoch, rows), sources in zip(behind, loaded, strict=True):
            yield self.data.batch(rows, (self.seed, epoch), sources)

    def _order(self, first_epoch: int, position: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the epoch and the rows of every batch."""
        for epoch in count(first_epoch):
            for rows in self.batches(epoch)[position:]:
                yield epoch, rows
            position = 0


def count_loaders(data: Encoded | RunningText, wanted: int | None) -> int:
    """Return how many processes read ahead: none where there are no files, or all fit in memory."""
    if not isinstance(data, Encoded) or not data.files:
        return 0
    if wanted is not None:
        return wanted
    if available_cores() == 1 or all(column.stays_in_memory for column in data.files.values()):
        return 0
    return 1 if available_cores() < 6 else 2
