"""Running text in parallel streams, in truncated chunks: a function of (text, seed, epoch), so training can resume.

The text is a ring of tokens, its end joined to its start. Each epoch cuts it, at a place of its own, into streams of
equal length, read side by side; a batch is the next chunk of every stream. So each token is a target once an epoch, and
what stands before it in its stream is what stands before it in the text (truncated backpropagation through time,
Mikolov et al. 2010).

Lines end with the end symbol, and after it the start symbol is read: a line looks as it does to a model that reads
line by line, except for what came before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dragoman.types import Batch


def flow(lines: Sequence[Sequence[int]], bos: int, eos: int) -> tuple[Tensor, Tensor]:
    """What is read and what is predicted after it, (tokens,) each. Every line ends with ``eos``."""
    targets = torch.tensor([token for line in lines for token in line])
    inputs = torch.cat([targets.new_tensor([bos]), targets[:-1]])
    return inputs.masked_fill(inputs == eos, bos), targets


class RunningText:
    """Stands in for ``batching.Encoded`` where the data is one text."""

    def __init__(
        self, lines: Sequence[Sequence[int]], *, chunk: int, carries: bool, bos: int, eos: int, pad: int
    ) -> None:
        """``carries``: does the state go on from chunk to chunk? If not, every chunk starts afresh."""
        self.inputs, self.targets = flow(lines, bos, eos)
        self.chunk, self.carries, self.pad = chunk, carries, pad
        self.tokens = len(self.targets)

    def batches(self, budget: int, *, seed: int, epoch: int, varied: bool = False) -> list[np.ndarray]:
        """Each (streams, 2): where the chunk of a stream begins, and how many tokens it has. Nothing is ``varied``."""
        streams = max(1, min(budget // self.chunk, self.tokens // self.chunk))
        edges = np.array([self.tokens * stream // streams for stream in range(streams + 1)])
        offset = int(np.random.default_rng([seed, epoch]).integers(self.tokens))
        sizes = np.diff(edges)
        found = []
        size = int(sizes.min())  # streams differ by one token at most: the last chunk takes it in
        for begin in range(0, size, self.chunk):
            length = sizes - begin if begin + self.chunk >= size else np.full(streams, self.chunk)
            found.append(np.stack([(edges[:-1] + offset + begin) % self.tokens, length], 1))
        return found

    def batch(self, rows: np.ndarray, draw: object = None) -> Batch:
        """``draw`` is for sources that training changes at random, of which there are none here."""
        begin, length = torch.from_numpy(rows).unbind(1)
        steps = torch.arange(int(length.max()))
        mask = steps < length[:, None]  # (streams, T)
        places = (begin[:, None] + steps) % self.tokens
        return Batch({}, self.inputs[places], self.targets[places].masked_fill(~mask, self.pad), mask)

    def padding(self, batches: Sequence[np.ndarray], draw: object = None) -> tuple[float, float]:
        """Shares of target and source positions that hold no token."""
        padded = sum(len(rows) * int(rows[:, 1].max()) for rows in batches)
        return 1.0 - self.tokens / max(padded, 1), 0.0
