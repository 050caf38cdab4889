"""Batches within a token budget: a function of (lengths, seed, epoch), so training can resume.

Rows are sorted by length, in random order among equals, then divided into batches whose number of
rows times longest side stays within the budget, and the batches are shuffled. Neighbours differ
little in length, so there is little padding. Where many rows have the same length, as sentences do,
they are sorted by their longest side and then by how much longer the source is: both sides have
little padding. Where hardly any two rows do, as with sound, that order would say nothing about the
target. Then rows are sorted by the target, since a decoder may step through it token by token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np

from dragoman.data.corpus.blocks import gather
from dragoman.data.corpus.columns import Column, EpochSeed, FileColumn
from dragoman.process.allocator import release_pages
from dragoman.types import Batch, PaddedArrays

MANY = 500_000  # rows whose sorting takes memory that is worth giving back


def make_batches(
    source_lengths: Sequence[int] | np.ndarray,
    target_lengths: Sequence[int] | np.ndarray,
    budget: int,
    *,
    seed: int,
    epoch: int,
) -> list[np.ndarray]:
    """Return the row numbers of each batch of one epoch."""
    generator = np.random.default_rng([seed, epoch])
    source, target = _as_integers(source_lengths), _as_integers(target_lengths)
    among_equals = np.empty(len(target), dtype=np.int32)  # rows in random order: the inverse of the permutation
    among_equals[generator.permutation(len(target))] = np.arange(len(target), dtype=np.int32)
    longest = np.maximum(source, target)

    def divide(values: np.ndarray, within: np.ndarray) -> tuple[float, list[np.ndarray]]:
        order = _sort_by((_zigzag(values, within), within), among_equals)
        batches = _divide(order, longest, int(budget))
        return _padding_factor(source, batches) + _padding_factor(target, batches), batches

    # one after the other, because the keys and the orders of many rows are large
    padding, batches = divide(source - target, longest)
    other_padding, others = divide(source, target)
    if other_padding < padding:
        batches = others
    if len(target) > MANY:
        release_pages()  # training computes in threads, which would not use it
    return [batches[i] for i in generator.permutation(len(batches))]


def _as_integers(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.asarray(lengths, dtype=np.int32)


def _sort_by(keys: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """Return the rows sorted by the last key, then by the one before, then as in ``order``.

    One stable sort for each key, the least important first, as in ``np.lexsort``. Keys of 16 bits
    are sorted in linear time, which lengths nearly always are.
    """
    for key in keys:
        small = key - key.min() if len(key) else key
        if not len(key) or small.max() < 2**16:
            small = small.astype(np.uint16)
        order = order[np.argsort(small[order], kind="stable")]
    return order


def _zigzag(values: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return sort keys that alternate up and down among equals of ``within``.

    So each group ends as the next begins.
    """
    keys = 1 - 2 * (within & 1)
    keys *= values
    return keys


def _divide(order: np.ndarray, longest: np.ndarray, budget: int) -> list[np.ndarray]:
    """Divide rows, in this order, into batches within the budget. ``longest``: the longest side of each row."""
    sides = gather(longest, order)
    batches, begin, rows = [], 0, len(order)
    while begin < rows:
        # No more rows than this fit, because none of them makes the batch narrower than its first row does.
        most = budget // max(int(sides[begin]), 1) + 2
        widths = np.maximum.accumulate(sides[begin : begin + most], dtype=np.int64)
        widths *= np.arange(1, len(widths) + 1)
        widths[0] = 0  # a row that is longer than the budget is a batch of its own
        excess = int(np.argmax(widths > budget))
        if not excess:
            batches.append(order[begin:])
            break
        end = begin + excess  # the first row that does not fit
        split = begin + _round_size(excess)
        if int(sides[split : end + 1].max()) * (end - split + 1) > budget:
            split = end  # the rest of a batch of short rows, followed by a long one
        batches.append(order[begin:split])
        begin = split
    return batches


def _padding_factor(lengths: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Return how many positions there are for each real one."""
    return 1.0 / max(1.0 - padding_share(lengths, batches), 1e-9)


def _round_size(rows: int) -> int:
    """Round down to a multiple of 16 (8 for fewer rows): fast in kernels, and fewer shapes."""
    step = 16 if rows >= 64 else 8 if rows >= 24 else 1
    return rows - rows % step


def padding_share(lengths: Sequence[int] | np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Return the share of positions that are padding."""
    counts = np.array([len(batch) for batch in batches if len(batch)], dtype=np.int64)
    if not len(counts):
        return 1.0
    sizes = gather(np.asarray(lengths), np.concatenate(batches))
    widest = np.maximum.reduceat(sizes, np.cumsum(counts) - counts)
    padded = int(np.dot(widest.astype(np.int64), counts))
    return 1.0 - float(int(sizes.sum(dtype=np.int64))) / max(padded, 1)


class Encoded:
    """Examples as columns of arrays and files, ready to be put into batches."""

    carries = False  # no state goes on from batch to batch

    def __init__(self, sources: Mapping[str, Column], targets: Column, *, bos: int) -> None:
        """``targets`` end with the end symbol; the decoder's inputs begin with ``bos`` instead."""
        self.sources, self.targets, self.bos = sources, targets, bos
        self.target_lengths = _as_integers(targets.lengths)
        self.source_lengths = self._longest([column.lengths for column in sources.values()])

    def __len__(self) -> int:
        return len(self.target_lengths)

    @property
    def tokens(self) -> int:
        """Target tokens of all rows, end symbols counted."""
        return int(np.sum(self.target_lengths, dtype=np.int64))

    @property
    def files(self) -> dict[str, FileColumn]:
        """The sources that are read from files."""
        return {name: column for name, column in self.sources.items() if isinstance(column, FileColumn)}

    def batches(self, budget: int, *, seed: int, epoch: int, varied: bool = False) -> list[np.ndarray]:
        """Return the row numbers of each batch.

        ``varied``: by the lengths that augmented rows have in this epoch.
        """
        source, target = self._lengths((seed, epoch) if varied else None)
        return make_batches(source, target, budget, seed=seed, epoch=epoch)

    def padding(self, batches: Sequence[np.ndarray], epoch_seed: EpochSeed | None = None) -> tuple[float, float]:
        """Return the shares of target and source positions that are padding."""
        source, target = self._lengths(epoch_seed)
        return padding_share(target, batches), padding_share(source, batches) if self.sources else 0.0

    def _lengths(self, epoch_seed: EpochSeed | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the lengths of the longest source and of the target of each row."""
        if epoch_seed is None:
            return self.source_lengths, self.target_lengths
        sources = [column.epoch_lengths(epoch_seed) for column in self.sources.values()]
        return self._longest(sources), _as_integers(self.targets.epoch_lengths(epoch_seed))

    def _longest(self, lengths: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
        if not lengths:
            return np.zeros(len(self), dtype=np.int32)
        return reduce(np.maximum, [_as_integers(column) for column in lengths])

    def batch(
        self,
        rows: np.ndarray,
        epoch_seed: EpochSeed | None = None,
        loaded: Mapping[str, PaddedArrays] = MappingProxyType({}),
    ) -> Batch:
        """Return a batch of these rows.

        ``epoch_seed``: augmented as that epoch of training sees them. ``loaded``: sources that
        another process has read.
        """
        numbers = rows.tolist()
        sources = {
            name: loaded[name] if name in loaded else column.padded(numbers, epoch_seed)
            for name, column in self.sources.items()
        }
        targets, mask = self.targets.padded(numbers, epoch_seed)  # (B, T)
        inputs = np.concatenate([np.full((len(numbers), 1), self.bos), targets[:, :-1]], 1)  # (B, T)
        return Batch.from_numpy(sources, inputs, targets, mask, tuple(numbers))
