"""One update on several cores: the rows of a batch are dealt out among threads, and the gradients added up.

The usual way, every single operation split among the cores, waits at the end of each of them. Where operations are
small, as here, that costs about a tenth of the time on a quiet machine and far more on a busy one, where a core that is
late by a moment holds up the others thousands of times an update. Threads that work on rows of their own meet once an
update.

The threads' models share the weights; gradients are their own and are added in the order of the shares, and each share
draws from a stream of its own. So the result is the same every time for one number of threads. Other numbers of threads
give other random numbers and another rounding, as another seed would.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dragoman.nn.chance import own_chance
from dragoman.nn.model import Model
from dragoman.types import Batch, Padded, State, cat_trees

FEWEST_ROWS = 4  # of a share: with fewer, products are too thin to be worth a thread

Result = TypeVar("Result")


def can_share(model: nn.Module) -> bool:
    """Batch norm looks across all rows of a batch: there they must stay together."""
    return not any(isinstance(module, _BatchNorm) for module in model.modules())


class Shares:
    """Models with one set of weights, one a thread."""

    def __init__(self, model: Model, count: int) -> None:
        self.count = count
        self.models = [model, *(with_same_weights(model) for _ in range(count - 1))]
        self.parameters = [[p for p in one.parameters() if p.requires_grad] for one in self.models]
        self.pool = ThreadPoolExecutor(count, "share", torch.set_num_threads, (1,))

    def can_take(self, batch: Batch) -> bool:
        return len(batch.inputs) >= FEWEST_ROWS * self.count

    def run(self, work: Callable[[Model, Batch], Result], batch: Batch, seed: int) -> list[Result]:
        """``work`` on every share, which is to leave gradients behind; their sum is left in the first model."""

        def one(index: int) -> Result:
            with own_chance(seed * self.count + index):
                return work(self.models[index], deal(batch, index, self.count))

        torch.set_num_threads(1)
        try:
            results = list(self.pool.map(one, range(self.count)))
        finally:
            torch.set_num_threads(self.count)
        for others in self.parameters[1:]:
            for mine, other in zip(self.parameters[0], others, strict=True):
                if other.grad is not None:
                    mine.grad = other.grad if mine.grad is None else mine.grad.add_(other.grad)
                    other.grad = None
        return results


def deal(batch: Batch, index: int, count: int) -> Batch:
    """Every ``count``-th row. Rows are sorted by length, so the shares are alike; columns that only pad are cut off."""

    def part(data: Tensor, mask: Tensor) -> Tensor:
        mine = mask[index::count]  # (rows, S), of pictures (rows, H, W)
        if mine.dim() == 2:
            return data[index::count, : int(mine.sum(1).max())]
        height, width = int(mine.any(2).sum(1).max()), int(mine.any(1).sum(1).max())
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


def joined(states: Sequence[State]) -> State:
    """The states of all shares as that of the batch, each row in its place again: what ``deal`` does, undone."""
    if len(states) == 1:
        return states[0]
    ends = [0, *accumulate(state.sources for state in states)]
    rows = torch.tensor([ends[row % len(states)] + row // len(states) for row in range(ends[-1])])
    whole = State(ends[-1], {}, cat_trees([state.carry for state in states]))
    return whole.reorder(rows)


def with_same_weights(model: Model) -> Model:
    """A copy whose parameters and buffers are those of ``model``, but whose gradients are its own."""
    same: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    for parameter in model.parameters():
        same[id(parameter)] = nn.Parameter(parameter.data, requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, same)
