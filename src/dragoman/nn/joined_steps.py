"""A tensor of all steps of a loop, and the steps one by one: apart and together again without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Room:
    """Where the gradients of all steps lie one behind the other, so that ``joined`` need not copy them."""

    def __init__(self) -> None:
        self.steps = 0  # of the loop, counted as it goes forward
        self.whole: Tensor | None = None  # (steps, ...), while gradients are on their way back
        self.free = 0

    def take(self, like: Tensor) -> Tensor:
        """An empty place like this tensor: asked for from the last step to the first."""
        if self.whole is None or self.whole.shape[1:] != like.shape or not self.free:
            self.whole, self.free = like.new_empty(self.steps, *like.shape), self.steps
        self.free -= 1
        place = self.whole[self.free]
        if not self.free:
            self.whole = None
        return place


def joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """``torch.cat``; a view where the parts already lie one behind the other in memory."""
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


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, ...]:
        return x.unbind(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return joined(gradients).view(len(gradients), *gradients[0].shape)


def steps_of(x: Tensor) -> tuple[Tensor, ...]:
    """x (T, ...) → T tensors. As ``unbind``, but gradients that lie in one room are not copied out of it."""
    found: tuple[Tensor, ...] = _Steps.apply(x)
    return found
