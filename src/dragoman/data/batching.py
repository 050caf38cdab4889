"""Batches of a token budget in length buckets: a function of (lengths, seed, epoch), so training can resume anywhere.

Rows are sorted, with chance deciding among equals, then cut into batches whose rows times longest side stay within the
budget, and the batches are shuffled. Neighbours differ little in length, so little is padding. Where many rows have the
same length, as sentences do, they are sorted by their longest side and then by how much the source is longer: both
sides are padded little. Where hardly two rows do, as of sound, that would say nothing of the target, by which they are
sorted then: a decoder may walk through it step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dragoman.data.stored import Draw, FileColumn
from dragoman.types import Batch, Padded


def make_batches(
    source_lengths: Sequence[int], target_lengths: Sequence[int], budget: int, *, seed: int, epoch: int
) -> list[np.ndarray]:
    """Row numbers of each batch of one epoch."""
    chance = np.random.default_rng([seed, epoch])
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    among_equals = chance.permutation(len(target))
    longest = np.maximum(source, target)
    orders = (
        np.lexsort((among_equals, _to_and_fro(source - target, longest), longest)),
        np.lexsort((among_equals, _to_and_fro(source, target), target)),
    )
    ways = [_cut(order, longest[order], budget) for order in orders]
    batches = min(ways, key=lambda way: _padded(source, way) + _padded(target, way))
    return [batches[i] for i in chance.permutation(len(batches))]


def _to_and_fro(values: np.ndarray, within: np.ndarray) -> np.ndarray:
    """To sort by among equals of ``within``: up and down in turn, so that one ends like the next begins."""
    return np.where(within % 2, -values, values)


def _cut(order: np.ndarray, longest_side: np.ndarray, budget: int) -> list[np.ndarray]:
    batches, begin, longest = [], 0, 0
    for end, length in enumerate(longest_side.tolist()):
        widest = max(longest, length)
        if end > begin and widest * (end - begin + 1) > budget:
            cut = begin + _even(end - begin)
            widest = int(longest_side[cut : end + 1].max())
            if widest * (end - cut + 1) > budget:  # the rest of a batch of short rows, and a long one behind it
                cut, widest = end, length
            batches.append(order[begin:cut])
            begin = cut
        longest = widest
    if begin < len(order):
        batches.append(order[begin:])
    return batches


def _padded(lengths: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Positions with padding for one without."""
    return 1.0 / max(1.0 - padding_share(lengths, batches), 1e-9)


def _even(rows: int) -> int:
    """The next smaller multiple of 16 (8, if it is few): kernels like it, and are prepared for fewer shapes."""
    step = 16 if rows >= 64 else 8 if rows >= 24 else 1
    return rows - rows % step


def padding_share(lengths: Sequence[int] | np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Share of the padded positions that holds no token."""
    sizes = np.asarray(lengths)
    padded = sum(int(sizes[batch].max()) * len(batch) for batch in batches)
    return 1.0 - float(sum(int(sizes[batch].sum()) for batch in batches)) / max(padded, 1)


class Column(Protocol):
    """One source of many rows."""

    @property
    def lengths(self) -> Sequence[int]: ...

    def drawn_lengths(self, draw: Draw) -> Sequence[int]:
        """Of the rows as ``draw`` changes them, where that is known before they are made."""

    def padded(self, rows: Sequence[int], draw: Draw | None = None) -> Padded:
        """``draw``: changed at random, as training wants it."""


class Rows:
    """Tensors that are held in memory. ``vary`` makes all anew as an epoch sees them: the same, in other tokens."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        vary: Callable[[np.random.Generator], Sequence[Tensor]] | None = None,
        room: int = 0,
        stream: int = 0,
    ) -> None:
        """``room``: how long a row may become, if not as long as the longest; what would be longer stays as it is.
        ``stream``: rows of another stream are drawn independently of these."""
        self.tensors, self.vary, self.stream = tensors, vary, stream
        self.lengths = [len(tensor) for tensor in tensors]
        self.room = max([room, *self.lengths])
        self._epochs: dict[Draw, list[Tensor]] = {}  # the two that were drawn last: the next is planned ahead

    def take(self, row: int, draw: Draw | None) -> Tensor:
        if draw is None or self.vary is None:
            return self.tensors[row]
        return self._varied(draw)[row]

    def drawn_lengths(self, draw: Draw) -> Sequence[int]:
        """Of all rows as one epoch sees them."""
        return self.lengths if self.vary is None else [len(tensor) for tensor in self._varied(draw)]

    def _varied(self, draw: Draw) -> list[Tensor]:
        assert self.vary is not None
        if draw not in self._epochs:
            varied = self.vary(np.random.default_rng([*draw, self.stream]))
            fitting = [
                other if len(other) <= self.room else plain for plain, other in zip(self.tensors, varied, strict=True)
            ]
            self._epochs = {**dict(list(self._epochs.items())[-1:]), draw: fitting}
        return self._epochs[draw]


class TensorColumn:
    """A source that is held in memory."""

    def __init__(self, rows: Rows, collate: Callable[[Sequence[Tensor]], Padded]) -> None:
        self.rows, self.collate = rows, collate
        self.lengths, self.drawn_lengths = rows.lengths, rows.drawn_lengths

    def padded(self, rows: Sequence[int], draw: Draw | None = None) -> Padded:
        return self.collate([self.rows.take(row, draw) for row in rows])


class Encoded:
    """Examples as tensors, or on the way to it, ready to be put into batches."""

    carries = False  # every batch starts afresh

    def __init__(self, sources: Mapping[str, Column], targets: Rows, *, bos: int, pad: int) -> None:
        """``targets`` end with the end symbol; the start symbol is put before the inputs here."""
        self.sources, self.targets, self.bos, self.pad = sources, targets, bos, pad
        self.target_lengths = targets.lengths
        self.source_lengths = self._longest([column.lengths for column in sources.values()])

    def __len__(self) -> int:
        return len(self.target_lengths)

    @property
    def tokens(self) -> int:
        """Of the targets, end symbols counted."""
        return sum(self.target_lengths)

    @property
    def files(self) -> dict[str, FileColumn]:
        """The sources that are read from files."""
        return {name: column for name, column in self.sources.items() if isinstance(column, FileColumn)}

    def batches(self, budget: int, *, seed: int, epoch: int, varied: bool = False) -> list[np.ndarray]:
        """``varied``: of rows as long as the random changes of training leave them."""
        source, target = self._lengths((seed, epoch) if varied else None)
        return make_batches(source, target, budget, seed=seed, epoch=epoch)

    def padding(self, batches: Sequence[np.ndarray], draw: Draw | None = None) -> tuple[float, float]:
        """Shares of target and source positions that hold no token."""
        source, target = self._lengths(draw)
        return padding_share(target, batches), padding_share(source, batches) if self.sources else 0.0

    def _lengths(self, draw: Draw | None) -> tuple[Sequence[int], Sequence[int]]:
        """Of the longest source and of the target of each row."""
        if draw is None:
            return self.source_lengths, self.target_lengths
        sources = [column.drawn_lengths(draw) for column in self.sources.values()]
        return self._longest(sources), self.targets.drawn_lengths(draw)

    def _longest(self, lengths: Sequence[Sequence[int]]) -> list[int]:
        return [max(row) for row in zip(*lengths, strict=True)] if lengths else [0] * len(self)

    def batch(
        self, rows: np.ndarray, draw: Draw | None = None, loaded: Mapping[str, Padded] = MappingProxyType({})
    ) -> Batch:
        """``draw``: with the random changes of training. ``loaded``: sources that were read elsewhere."""
        chosen = rows.tolist()
        sources = {
            name: loaded[name] if name in loaded else column.padded(chosen, draw)
            for name, column in self.sources.items()
        }
        taken = [self.targets.take(row, draw) for row in chosen]
        targets = torch.nn.utils.rnn.pad_sequence(taken, batch_first=True, padding_value=self.pad)
        lengths = torch.tensor([len(target) for target in taken])
        inputs = torch.cat([torch.full((len(chosen), 1), self.bos), targets[:, :-1]], 1)
        mask = torch.arange(targets.shape[1]) < lengths[:, None]
        return Batch(sources, inputs, targets, mask, tuple(chosen))
