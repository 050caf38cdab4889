"""Threads that share the rows of a batch.

The usual way, every single operation split among the cores, waits at the end of each operation.
Where operations are small, as here, that costs about a tenth of the time on a quiet machine and far
more on a busy one, where one late core holds up the others thousands of times per update. Threads
that work on rows of their own wait for each other once per batch.

The threads' models share the weights. Each has gradients of its own, which are added in the order
of the shares, and each draws from a random stream of its own. So the result is the same every time
for one number of threads. Another number of threads gives other random numbers and another
rounding, as another seed would.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dragoman.nn.model import Model
from dragoman.process.generators import thread_generator
from dragoman.training.parallel.group import Result, deal
from dragoman.types import Batch

FEWEST_ROWS = 4  # of a share: with fewer, products are too small to be worth a thread


def can_share_rows(model: nn.Module) -> bool:
    """Return whether rows are independent. Batch norm looks across all rows of a batch."""
    return not any(isinstance(module, _BatchNorm) for module in model.modules())


class ThreadGroup:
    """A ``WorkerGroup`` of threads, each with a model of its own over the same weights."""

    def __init__(self, model: Model, count: int) -> None:
        self.model, self.count = model, count

    @cached_property
    def models(self) -> list[Model]:
        """Return one model per thread, made when it is first needed."""
        return [self.model, *(with_same_weights(self.model) for _ in range(self.count - 1))]

    @cached_property
    def _parameters(self) -> list[list[nn.Parameter]]:
        return [[p for p in model.parameters() if p.requires_grad] for model in self.models]

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count, "share", torch.set_num_threads, (1,))

    def splits(self, batch: Batch) -> bool:
        """Return whether the batch has enough rows for all threads."""
        return self.count > 1 and len(batch.inputs) >= FEWEST_ROWS * self.count

    def run(self, work: Callable[[Model, Batch], Result], batch: Batch, seed: int) -> list[Result]:
        if not self.splits(batch):
            return [work(self.model, batch)]
        models = self.models

        def work_on_share(index: int) -> Result:
            with thread_generator(seed * self.count + index):
                return work(models[index], deal(batch, index, self.count))

        torch.set_num_threads(1)
        try:
            results = list(self._pool.map(work_on_share, range(self.count)))
        finally:
            torch.set_num_threads(self.count)
        self._sum_gradients()
        return results

    def _sum_gradients(self) -> None:
        """Add the gradients of the other models to those of the first."""
        first, *others = self._parameters
        for parameters in others:
            for mine, other in zip(first, parameters, strict=True):
                if other.grad is not None:
                    mine.grad = other.grad if mine.grad is None else mine.grad.add_(other.grad)
                    other.grad = None


def with_same_weights(model: Model) -> Model:
    """Return a copy with the parameters and buffers of ``model``, but gradients of its own."""
    same: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    for parameter in model.parameters():
        same[id(parameter)] = nn.Parameter(parameter.data, requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, same)
