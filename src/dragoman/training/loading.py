"""Batches in the order of training, without end; where they come from files, made ahead of need.

What a batch holds depends on seed, epoch and its rows alone, so training is the same with any number of loaders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, tee

import numpy as np

from dragoman.data.batching import Encoded
from dragoman.data.readers import Readers
from dragoman.data.running import RunningText
from dragoman.training.machine import cores
from dragoman.training.options import TrainingConfig
from dragoman.types import Batch


class Loading:
    """Begins at a place in an epoch; ``close`` ends the processes."""

    def __init__(
        self,
        data: Encoded | RunningText,
        config: TrainingConfig,
        batches: Callable[[int], list[np.ndarray]],
        epoch: int,
        position: int,
    ) -> None:
        """``batches`` tells the rows of each batch of an epoch."""
        self.data, self.seed, self.batches = data, config.seed, batches
        loaders = how_many(data, config.loaders)
        self.readers = Readers(data.files, loaders) if isinstance(data, Encoded) and loaders else None
        self.made = self._make(epoch, position)

    def take(self, number: int) -> list[Batch]:
        """The next batches."""
        return [next(self.made) for _ in range(number)]

    def close(self) -> None:
        if self.readers is not None:
            self.readers.close()

    def _make(self, epoch: int, position: int) -> Iterator[Batch]:
        rows = self._rows(epoch, position)
        if self.readers is None or not isinstance(self.data, Encoded):
            for epoch, chosen in rows:
                yield self.data.batch(chosen, (self.seed, epoch))
            return
        ahead, behind = tee(rows)
        loaded = self.readers.run((chosen.tolist(), (self.seed, epoch)) for epoch, chosen in ahead)
        for (epoch, chosen), sources in zip(behind, loaded, strict=True):
            yield self.data.batch(chosen, (self.seed, epoch), sources)

    def _rows(self, first: int, position: int) -> Iterator[tuple[int, np.ndarray]]:
        for epoch in count(first):
            for chosen in self.batches(epoch)[position:]:
                yield epoch, chosen
            position = 0


def how_many(data: Encoded | RunningText, asked: int | None) -> int:
    """Processes that read ahead: none where nothing is read from files, or where it will all be kept in memory."""
    if not isinstance(data, Encoded) or not data.files:
        return 0
    if asked is not None:
        return asked
    if cores() == 1 or all(column.stays_in_memory for column in data.files.values()):
        return 0
    return 1 if cores() < 6 else 2
