"""Threads that share the rows of a batch.

The usual way, every single operation split among the cores, waits at the end of each operation.
Where operations are small, as here, that costs about a tenth of the time on a quiet machine and far
more on a busy one, where one late core holds up the others thousands of times per update. Threads
that work on rows of their own wait for each other once per batch.

The threads' models share the weights. Each share of a batch has gradients of its own, which are
added in the order of the shares, and draws from a random stream of its own. So the result depends
on the number of shares, which a run keeps, and not on how many threads compute them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property

import torch
from torch import nn

from dragoman.nn.model import Model
from dragoman.process.generators import thread_generator
from dragoman.training.parallel.group import Result, deal, is_split
from dragoman.types import Batch


class SharePool:
    """Threads of this process that compute some of the shares of a batch."""

    def __init__(self, model: Model, count: int, own: range, threads: int) -> None:
        """``count``: shares of a batch; ``own``: those of this process."""
        self.model, self.count, self.own = model, count, own
        self.threads = min(threads, len(own))

    @cached_property
    def models(self) -> list[Model]:
        """Return one model per share of this process, made when they are first needed."""
        return [self.model, *(with_same_weights(self.model) for _ in self.own[1:])]

    @cached_property
    def parameters(self) -> list[list[nn.Parameter]]:
        """Return the trained parameters of each model."""
        return [[p for p in model.parameters() if p.requires_grad] for model in self.models]

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads, "share", torch.set_num_threads, (1,))

    def run(self, work: Callable[[Model, Batch], Result], batch: Batch, seed: int) -> list[Result]:
        """Call ``work`` on each of the shares; their gradients are left in their models."""
        models = self.models

        def work_on_share(index: int) -> Result:
            with thread_generator(seed * self.count + self.own[index], batch.inputs.device):
                return work(models[index], deal(batch, self.own[index], self.count))

        torch.set_num_threads(1)
        try:
            shares = range(len(self.own))
            if self.threads == 1:
                return [work_on_share(index) for index in shares]
            futures = [self._threads.submit(work_on_share, index) for index in shares]
            wait(futures)  # all of them: where one fails, the others may still be at work
            return [future.result() for future in futures]
        finally:
            torch.set_num_threads(self.count)

    def clear(self) -> None:
        """Drop the gradients of all models."""
        models = self.models if "models" in self.__dict__ else [self.model]
        for model in models:
            for parameter in model.parameters():
                parameter.grad = None

    def sum_gradients(self) -> None:
        """Add the gradients of the other models to those of the first."""
        first, *others = self.parameters
        for parameters in others:
            for mine, other in zip(first, parameters, strict=True):
                if other.grad is not None:
                    mine.grad = other.grad if mine.grad is None else mine.grad.add_(other.grad)
                    other.grad = None


class ThreadGroup:
    """A ``WorkerGroup`` of the threads of one process."""

    def __init__(self, model: Model, count: int, threads: int | None = None) -> None:
        """``count``: shares of a batch. ``threads``: by default one for each."""
        self.model, self.count = model, count
        self.pool = SharePool(model, count, range(count), threads or count)

    def run(self, work: Callable[[Model, Batch], Result], batch: Batch, seed: int) -> list[Result]:
        if not is_split(batch, self.count):
            return [work(self.model, batch)]
        results = self.pool.run(work, batch, seed)
        self.pool.sum_gradients()
        return results

    rehearse = run

    def clear(self) -> None:
        self.pool.clear()

    def describe(self) -> str:
        if self.pool.threads == self.count:
            return ""
        return f"each batch is dealt out in {self.count} shares, as this run began, to {self.pool.threads} thread(s)"


def with_same_weights(model: Model) -> Model:
    """Return a copy with the parameters and buffers of ``model``, but gradients of its own."""
    same: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    for parameter in model.parameters():
        same[id(parameter)] = nn.Parameter(parameter.data, requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, same)
