"""Running text in parallel streams and truncated chunks: a function of (text, seed, epoch).

The text is a ring of tokens, its end joined to its start. Each epoch divides it, at a random place,
into streams of equal length that are read side by side; a batch is the next chunk of every stream.
So each token is a target once in an epoch, and what precedes it in its stream is what precedes it
in the text (truncated backpropagation through time, Mikolov et al. 2010).

Lines end with the end symbol, after which the start symbol is read. So a line looks as it does to a
model that reads line by line, except for what came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dragoman.types import Batch


class TokenStream(Protocol):
    """All tokens of a text, in memory or on disk."""

    def __len__(self) -> int:
        """Return the number of tokens."""

    def __getitem__(self, positions: np.ndarray, /) -> np.ndarray:
        """Return the tokens at these positions, in an array of the same shape."""


def flow(lines: Sequence[Sequence[int]], bos: int, eos: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs and targets of a text, (tokens,) each. Every line must end with ``eos``."""
    targets = np.array([token for line in lines for token in line], dtype=np.int64)
    inputs = np.concatenate([[bos], targets[:-1]])
    return np.where(inputs == eos, bos, inputs), targets


class RunningText:
    """Takes the place of ``batching.Encoded`` where the data is one text."""

    def __init__(self, targets: TokenStream, *, chunk: int, carries: bool, bos: int, eos: int, pad: int) -> None:
        """``targets``: the tokens of all lines, each of which ends with ``eos``.

        ``carries``: the decoder's state goes on from chunk to chunk. If not, every chunk starts
        afresh.
        """
        self.targets = targets
        self.chunk, self.carries, self.bos, self.eos, self.pad = chunk, carries, bos, eos, pad
        self.tokens = len(targets)

    def batches(self, budget: int, *, seed: int, epoch: int, varied: bool = False) -> list[np.ndarray]:
        """Return batches of (streams, 2): where the chunk of a stream begins, and its length.

        ``varied`` has no meaning here: running text is not augmented.
        """
        streams = max(1, min(budget // self.chunk, self.tokens // self.chunk))
        edges = np.array([self.tokens * stream // streams for stream in range(streams + 1)])
        offset = int(np.random.default_rng([seed, epoch]).integers(self.tokens))
        sizes = np.diff(edges)
        batches = []
        size = int(sizes.min())  # streams differ by one token at most, which the last chunk takes in
        for begin in range(0, size, self.chunk):
            length = sizes - begin if begin + self.chunk >= size else np.full(streams, self.chunk)
            batches.append(np.stack([(edges[:-1] + offset + begin) % self.tokens, length], 1))
        return batches

    def batch(self, rows: np.ndarray, epoch_seed: object = None) -> Batch:
        """Return one batch of ``batches``.

        ``epoch_seed`` has no meaning here: running text is not augmented.
        """
        begin, length = rows.T
        steps = np.arange(length.max())
        mask = steps < length[:, None]  # (streams, T)
        positions = (begin[:, None] + steps) % self.tokens
        before = self.targets[(positions - 1) % self.tokens].astype(np.int64)  # the last token ends a line too
        inputs = np.where(before == self.eos, self.bos, before)
        targets = np.where(mask, self.targets[positions], self.pad).astype(np.int64)
        return Batch.from_numpy({}, inputs, targets, mask)

    def padding(self, batches: Sequence[np.ndarray], epoch_seed: object = None) -> tuple[float, float]:
        """Return the shares of target and source positions that are padding."""
        padded = sum(len(rows) * int(rows[:, 1].max()) for rows in batches)
        return 1.0 - self.tokens / max(padded, 1), 0.0
