"""Batches of a token budget in length buckets: a function of (lengths, seed, epoch), so training can resume anywhere.

Rows are sorted by target and source length with chance deciding among equals, cut into batches whose rows times longest
side stay within the budget, and the batches are shuffled. Neighbours differ little in length, so little is padding.
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
    order = np.lexsort((chance.permutation(len(target)), source, target))
    longest_side = np.maximum(source, target)[order]
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
    return [batches[i] for i in chance.permutation(len(batches))]


def _even(rows: int) -> int:
    """The next smaller multiple of 16 (8, if it is few): kernels like it, and are prepared for fewer shapes."""
    step = 16 if rows >= 64 else 8 if rows >= 24 else 1
    return rows - rows % step


def padding_share(lengths: Sequence[int], batches: Sequence[np.ndarray]) -> float:
    """Share of the padded positions that holds no token."""
    sizes = np.asarray(lengths)
    padded = sum(int(sizes[batch].max()) * len(batch) for batch in batches)
    return 1.0 - float(sum(int(sizes[batch].sum()) for batch in batches)) / max(padded, 1)


class Column(Protocol):
    """One source of many rows."""

    @property
    def lengths(self) -> Sequence[int]: ...

    def padded(self, rows: Sequence[int], draw: Draw | None = None) -> Padded:
        """``draw``: changed at random, as training wants it."""


class Rows:
    """Tensors that are held in memory. ``vary`` makes a row anew as training sees it: the same, in other tokens."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        vary: Callable[[int, np.random.Generator], Tensor] | None = None,
        room: int = 0,
    ) -> None:
        """``room``: how long a row may become, if not as long as the longest; what would be longer stays as it is."""
        self.tensors, self.vary = tensors, vary
        self.lengths = [len(tensor) for tensor in tensors]
        self.room = max([room, *self.lengths])

    def take(self, row: int, draw: Draw | None, stream: int = 0) -> Tensor:
        if draw is None or self.vary is None:
            return self.tensors[row]
        varied = self.vary(row, np.random.default_rng([*draw, row, stream]))
        return varied if len(varied) <= self.room else self.tensors[row]


class TensorColumn:
    """A source that is held in memory."""

    def __init__(self, rows: Rows, collate: Callable[[Sequence[Tensor]], Padded]) -> None:
        self.rows, self.collate = rows, collate
        self.lengths = rows.lengths

    def padded(self, rows: Sequence[int], draw: Draw | None = None) -> Padded:
        return self.collate([self.rows.take(row, draw) for row in rows])


class Encoded:
    """Examples as tensors, or on the way to it, ready to be put into batches."""

    carries = False  # every batch starts afresh

    def __init__(self, sources: Mapping[str, Column], targets: Rows, *, bos: int, pad: int) -> None:
        """``targets`` end with the end symbol; the start symbol is put before the inputs here."""
        self.sources, self.targets, self.bos, self.pad = sources, targets, bos, pad
        self.target_lengths = targets.lengths
        lengths = [column.lengths for column in sources.values()]
        self.source_lengths = [max(row) for row in zip(*lengths, strict=True)] if lengths else [0] * len(self)

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

    def batches(self, budget: int, *, seed: int, epoch: int) -> list[np.ndarray]:
        return make_batches(self.source_lengths, self.target_lengths, budget, seed=seed, epoch=epoch)

    def padding(self, batches: Sequence[np.ndarray]) -> tuple[float, float]:
        """Shares of target and source positions that hold no token."""
        source = padding_share(self.source_lengths, batches) if self.sources else 0.0
        return padding_share(self.target_lengths, batches), source

    def batch(
        self, rows: np.ndarray, draw: Draw | None = None, loaded: Mapping[str, Padded] = MappingProxyType({})
    ) -> Batch:
        """``draw``: with the random changes of training. ``loaded``: sources that were read elsewhere."""
        chosen = rows.tolist()
        sources = {
            name: loaded[name] if name in loaded else column.padded(chosen, draw)
            for name, column in self.sources.items()
        }
        taken = [self.targets.take(row, draw, stream=1) for row in chosen]
        targets = torch.nn.utils.rnn.pad_sequence(taken, batch_first=True, padding_value=self.pad)
        lengths = torch.tensor([len(target) for target in taken])
        inputs = torch.cat([torch.full((len(chosen), 1), self.bos), targets[:, :-1]], 1)
        mask = torch.arange(targets.shape[1]) < lengths[:, None]
        return Batch(sources, inputs, targets, mask, tuple(chosen))
