"""Split a tensor into time steps and join the steps' gradients again, without copying them.

A loop over time slices a tensor (T, ...) into T steps. In the backward pass each step has a
gradient of its own, made from the last step to the first, and torch would copy all of them into one
tensor. Here whoever computes a step's gradient may ask a ``GradientArena`` for the memory to write
it to. The arena hands out consecutive slots of one tensor, the last one first. ``concatenate`` then
notices that the gradients already lie one after the other in memory, and returns a view of all of
them instead of a copy. If they do not, for whatever reason, it copies them as torch does: the arena
saves time, and the result never depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dragoman.nn.kernels._switch import Twin, is_fast, sample


class GradientArena:
    """Consecutive memory for the gradients of all steps of a loop."""

    def __init__(self) -> None:
        self.steps = 0  # of the loop, counted in the forward pass
        self.memory: Tensor | None = None  # (steps, ...), while a backward pass is under way
        self.free = 0  # slots not handed out yet

    def slot(self, like: Tensor) -> Tensor:
        """Return uninitialised memory of the shape of ``like``.

        The last step asks first, the first step last.
        """
        if self.memory is None or self.memory.shape[1:] != like.shape or not self.free:
            self.memory, self.free = like.new_empty(self.steps, *like.shape), self.steps
        self.free -= 1
        slot = self.memory[self.free]
        if not self.free:
            self.memory = None
        return slot


def concatenate(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return ``torch.cat(parts, dim)``, as a view if the parts are consecutive in memory."""
    first = parts[0]
    size = first.numel() * first.element_size()
    if dim == 0 and all(
        part.is_contiguous()
        and part.shape == first.shape
        and part.data_ptr() == first.data_ptr() + index * size
        and part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        for index, part in enumerate(parts)
    ):
        return first.as_strided((len(parts) * first.shape[0], *first.shape[1:]), first.stride())
    return torch.cat(list(parts), dim)


class _UnbindSteps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, ...]:
        return x.unbind(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return concatenate(gradients).view(len(gradients), *gradients[0].shape)


def unbind_steps(x: Tensor) -> tuple[Tensor, ...]:
    """Return the T slices of x (T, ...). Gradients that lie in one arena are not copied."""
    if not is_fast():
        return x.unbind(0)
    steps: tuple[Tensor, ...] = _UnbindSteps.apply(x)
    return steps


def _inputs() -> Iterator[tuple[Any, ...]]:
    yield (sample(4, 2, 3),)


TWINS = (Twin(unbind_steps, lambda x: x.unbind(0), _inputs),)
