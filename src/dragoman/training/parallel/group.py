"""What a group of workers does, whether they are threads of this process or processes of their own.

A batch is dealt out in shares. A run keeps its number of shares; threads and processes, however
many there are, compute them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from dragoman.nn.model import Model
from dragoman.training.objective.gradient import ShareResult
from dragoman.types import Batch, Padded, State, cat_trees

Result = TypeVar("Result")

FEWEST_ROWS = 4  # of a share: with fewer, products are too small to be worth a worker


class WorkerGroup(Protocol):
    """Workers that compute the shares of each batch and add up their gradients.

    Laws: the gradient left in the trainer's model is the sum over all rows, up to rounding; it is
    the same every time, bit for bit, for the same batch, seed and ``count``, however many threads
    or processes compute it; one share changes nothing.

    The work of share ``index`` draws from a random stream seeded with ``seed * count + index``.
    Gradients are added in the order of the shares. A batch of few rows stays whole.
    """

    @property
    def count(self) -> int:
        """Return the number of shares."""

    def clear(self) -> None:
        """Drop all gradients, also those that a failed ``run`` has left behind."""

    def run(self, work: Callable[[Model, Batch], ShareResult], batch: Batch, seed: int) -> list[ShareResult]:
        """Call ``work`` on every share of a batch and return the results in the shares' order.

        ``work`` adds gradients to the parameters of the model that it is given. Afterwards the
        trainer's model has the sum of the gradients of all shares. All processes call this
        together, each gets all results, and all have the same sum.
        """

    def rehearse(self, work: Callable[[Model, Batch], ShareResult], batch: Batch, seed: int) -> list[ShareResult]:
        """Call ``work`` on the shares of this process alone, to measure how long they take."""

    def describe(self) -> str:
        """Return a sentence on who computes what, or nothing where it is the usual."""


def is_split(batch: Batch, count: int) -> bool:
    """Return whether a batch has enough rows to be dealt out in ``count`` shares."""
    return count > 1 and len(batch.inputs) >= FEWEST_ROWS * count


def deal(batch: Batch, index: int, count: int) -> Batch:
    """Return every ``count``-th row of a batch, from row ``index`` on.

    Rows are sorted by length, so the shares are alike. Columns that hold only padding are cut off.
    """

    def part(data: Tensor, mask: Tensor) -> Tensor:
        own = mask[index::count]  # (rows, S), for pictures (rows, H, W)
        if own.dim() == 2:
            return data[index::count, : int(own.sum(1).max())]
        height, width = int(own.any(2).sum(1).max()), int(own.any(1).sum(1).max())
        return data[index::count, :height, :width]

    sources = {
        name: Padded(part(source.data, source.mask), part(source.mask, source.mask))
        for name, source in batch.sources.items()
    }
    inputs, targets, mask = (part(data, batch.mask) for data in (batch.inputs, batch.targets, batch.mask))
    state = batch.state
    if state is not None:
        state = state.select(torch.arange(index, len(batch.inputs), count, device=batch.inputs.device))
    return Batch(sources, inputs, targets, mask, batch.rows[index::count], state)


def join_states(states: Sequence[State]) -> State:
    """Return the states of all shares as the state of the batch: the inverse of ``deal``."""
    if len(states) == 1:
        return states[0]
    ends = [0, *accumulate(state.sources for state in states)]
    rows = torch.tensor([ends[row % len(states)] + row // len(states) for row in range(ends[-1])])
    whole = State(ends[-1], {}, cat_trees([state.carry for state in states]))
    return whole.reorder(rows)
