"""One side of many rows, a source or the target: arrays that are held in memory, or files.

Training may augment a row: a text is segmented into other tokens, a picture is moved a little. What
a row becomes depends on its number and the epoch's seed alone, so that training can resume anywhere
and any number of processes can read the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np

from dragoman.data.corpus.files import Cache, PendingFile
from dragoman.data.media import named
from dragoman.data.modality import Modality
from dragoman.types import PaddedArrays

SAMPLE = 8  # files that the size of a column in memory is estimated from

Lengths: TypeAlias = "Sequence[int] | np.ndarray"
EpochSeed: TypeAlias = tuple[int, int]  # the run's seed and the epoch
Collate: TypeAlias = Callable[[Sequence[np.ndarray]], PaddedArrays]
AugmentAll: TypeAlias = Callable[[np.random.Generator], Sequence[np.ndarray]]  # all rows as one epoch sees them


class Column(Protocol):
    """One source, or the target, of many rows."""

    @property
    def lengths(self) -> Lengths:
        """The lengths of all rows, not augmented."""

    def epoch_lengths(self, epoch_seed: EpochSeed) -> Lengths:
        """Return the lengths of all rows as an epoch of training sees them, where known."""

    def padded(self, rows: Sequence[int], epoch_seed: EpochSeed | None = None) -> PaddedArrays:
        """Return a batch of these rows.

        ``epoch_seed``: augmented, as that epoch of training sees them.
        """


class ArrayColumn:
    """Arrays that are held in memory, or mapped into it."""

    def __init__(
        self,
        arrays: Sequence[np.ndarray],
        collate: Collate,
        augment: AugmentAll | None = None,
        max_length: int = 0,
        stream: int = 0,
        lengths: np.ndarray | None = None,
    ) -> None:
        """``augment`` makes the rows of an epoch; ``stream`` separates its random numbers.

        ``lengths``: of the arrays, where they are known already.

        A row that would become longer than ``max_length`` and than the longest row keeps its
        original array.
        """
        self.arrays, self.collate, self.augment, self.stream = arrays, collate, augment, stream
        self.lengths = np.array([len(array) for array in arrays], dtype=np.int32) if lengths is None else lengths
        self.max_length = max(max_length, int(self.lengths.max(initial=0)))
        self._epochs: dict[EpochSeed, list[np.ndarray]] = {}  # the last two: the next epoch is planned ahead

    def array(self, row: int, epoch_seed: EpochSeed | None = None) -> np.ndarray:
        """Return one row."""
        if epoch_seed is None or self.augment is None:
            return self.arrays[row]
        return self._augmented(epoch_seed)[row]

    def epoch_lengths(self, epoch_seed: EpochSeed) -> Lengths:
        return self.lengths if self.augment is None else [len(array) for array in self._augmented(epoch_seed)]

    def padded(self, rows: Sequence[int], epoch_seed: EpochSeed | None = None) -> PaddedArrays:
        return self.collate([self.array(row, epoch_seed) for row in rows])

    def _augmented(self, epoch_seed: EpochSeed) -> list[np.ndarray]:
        assert self.augment is not None
        if epoch_seed not in self._epochs:
            augmented = self.augment(np.random.default_rng([*epoch_seed, self.stream]))
            fitting = [
                changed if len(changed) <= self.max_length else original
                for original, changed in zip(self.arrays, augmented, strict=True)
            ]
            self._epochs = {**dict(list(self._epochs.items())[-1:]), epoch_seed: fitting}
        return self._epochs[epoch_seed]


class FileColumn:
    """Files that are read when a batch needs them."""

    def __init__(
        self,
        modality: Modality,
        raws: Sequence[str],
        cache: Cache | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        """``lengths``: of the rows, where they are known already."""
        self.modality, self.raws, self.cache = modality, list(raws), cache or Cache()
        self._lengths = lengths

    @cached_property
    def lengths(self) -> Lengths:
        if self._lengths is not None:
            return self._lengths
        return [len(PendingFile(self.modality, raw)) for raw in self.raws]

    def epoch_lengths(self, epoch_seed: EpochSeed) -> Lengths:
        """Return the lengths of the files, not augmented: those are known after reading only."""
        return self.lengths

    def padded(self, rows: Sequence[int], epoch_seed: EpochSeed | None = None) -> PaddedArrays:
        return self.modality.collate([self._array(row, epoch_seed) for row in rows])

    def _array(self, row: int, epoch_seed: EpochSeed | None) -> np.ndarray:
        raw = self.raws[row]
        with named(raw):
            if epoch_seed is None or not self.modality.varies:
                return self.cache.array(self.modality, raw)
            return self.modality.augmented(raw, np.random.default_rng([*epoch_seed, row]))

    @property
    def stays_in_memory(self) -> bool:
        """Whether the cache will hold all files after the first epoch, by an estimate."""
        if self.modality.varies or not self.cache.limit:
            return False
        rows = range(0, len(self.raws), max(1, len(self.raws) // SAMPLE))
        mean = sum(self._array(row, None).nbytes for row in rows) / len(rows)
        return mean * len(self.raws) <= self.cache.limit
