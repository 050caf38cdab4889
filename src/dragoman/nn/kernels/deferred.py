"""Products inside a loop over time whose large gradients are computed once, not once per step.

A decoder that loops over target tokens uses the same weights, and reads the same source, at every
step. Autograd would compute the gradient of such a tensor at each step and add the results up, and
summing a large gradient T times costs as much memory traffic as the steps themselves. Inside
``deferred_gradients()`` each step of the backward pass only notes its input and the gradient of its
output; one product over all steps makes the gradient at the end. Outside, or with the plain
kernels, the same functions are ordinary products. The results are the same up to rounding.

How it works: ``deferred_gradients()`` opens a dictionary that belongs to the calling thread (a
context variable). It maps each tensor used in the loop to its ``DeferredGradient``. Tensors have no
value to hash, so the key is ``id()``; the entry holds the tensor, so the id cannot be given to
another one meanwhile. The tensor itself enters the steps detached. What ties it to the graph is a
token: an empty tensor that ``_ComputeAfterUses`` makes from it and that every step takes as an
input. Autograd runs the backward of ``_ComputeAfterUses`` only after that of all steps with the
token, and that is when the gradient can be computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

from dragoman.nn.kernels._precision import autocasts, full_precision
from dragoman.nn.kernels._switch import Twin, is_fast, sample
from dragoman.nn.kernels.linear import linear
from dragoman.nn.kernels.time_steps import GradientArena, concatenate


class DeferredGradient(ABC):
    """The uses of one tensor in one loop, and the gradient that is computed from all of them."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor  # kept alive, because it is looked up by its id
        self.inputs: list[Tensor] = []  # of each step, from the last to the first
        self.gradients: list[Tensor] = []  # of each step's output, likewise

    @abstractmethod
    def compute(self) -> tuple[Tensor, ...]:
        """Return the gradients of its tensors, once every use has been differentiated."""

    def collect(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return and forget the inputs and gradients of all steps, from the first to the last."""
        collected = torch.cat(self.inputs[::-1], dim), concatenate(self.gradients[::-1], dim)
        self.inputs.clear()
        self.gradients.clear()
        return collected


class _ComputeAfterUses(torch.autograd.Function):
    """The autograd node whose backward runs after that of every step that takes its token.

    A ``DeferredGradient`` must not hold its token: the token's graph holds the
    ``DeferredGradient``, and such a cycle would stay in memory until the garbage collector runs.
    """

    @staticmethod
    def forward(ctx: Any, deferred: DeferredGradient, *tensors: Tensor) -> Tensor:
        ctx.deferred = deferred
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.deferred.compute()


class _WeightGradient(DeferredGradient):
    """The gradient of a weight (out, in) that ``loop_linear`` uses."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.arena = GradientArena()  # for whoever computes the gradients of the products
        # products with few rows are faster with the weight as (in, out): transposed once, not inside every product
        self.transposed = weight.detach().t().contiguous()

    def compute(self) -> tuple[Tensor, ...]:
        inputs, gradients = self.collect(0)  # (T * rows, in), (T * rows, out)
        return (gradients.t() @ inputs,)


class _LinearStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, deferred: _WeightGradient, token: Tensor
    ) -> Tensor:
        ctx.deferred, ctx.weight, ctx.has_added = deferred, weight, added is not None
        ctx.x = x
        deferred.arena.steps += 1
        return x @ deferred.transposed if added is None else torch.addmm(added, x, deferred.transposed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        ctx.deferred.inputs.append(ctx.x)
        ctx.deferred.gradients.append(gradient)
        return gradient @ ctx.weight, gradient if ctx.has_added else None, None, None, None


class _ValuesGradient(DeferredGradient):
    """The gradient of values (B, S, D) that ``loop_weighted_sum`` averages."""

    def compute(self) -> tuple[Tensor, ...]:
        weights, gradients = self.collect(1)  # (B, T, S), (B, T, D)
        return (torch.bmm(weights.transpose(1, 2), gradients),)


class _WeightedSumStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, deferred: _ValuesGradient, token: Tensor) -> Tensor:
        ctx.deferred, ctx.weights, ctx.values = deferred, weights, values
        return torch.bmm(weights, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.deferred.inputs.append(ctx.weights)
        ctx.deferred.gradients.append(gradient)
        return torch.bmm(gradient, ctx.values.transpose(1, 2)), None, None, None


# (kind, id of the tensor) → the deferred gradient and its token
_Deferrals = dict[tuple[type[DeferredGradient], int], tuple[Any, Tensor]]
_deferrals: ContextVar[_Deferrals | None] = ContextVar("deferrals", default=None)
Kind = TypeVar("Kind", bound=DeferredGradient)


@contextmanager
def deferred_gradients() -> Iterator[None]:
    """Defer the gradients of what ``loop_`` functions use, in a ``with`` block around one loop."""
    reset = _deferrals.set({})
    try:
        yield
    finally:
        _deferrals.reset(reset)


def deferral_of(tensor: Tensor, kind: type[Kind], *beside: Tensor) -> tuple[Kind, Tensor] | None:
    """Return a tensor's deferred gradient in this loop and its token; None if nothing is deferred.

    ``beside`` are tensors that always come with it and whose gradients are computed with its own.
    """
    deferrals = _deferrals.get()
    if deferrals is None or not (torch.is_grad_enabled() and tensor.requires_grad and is_fast()):
        return None
    key = (kind, id(tensor))
    if key not in deferrals:
        deferred = kind(tensor, *beside)
        deferrals[key] = deferred, _ComputeAfterUses.apply(deferred, tensor, *beside)
    return deferrals[key]


@full_precision
def loop_linear(x: Tensor, weight: Tensor, added: Tensor | None = None) -> Tensor:
    """Return x Wᵀ (+ added). x (rows, in), weight (out, in).

    The gradient of the weight is deferred inside a loop.
    """
    deferral = deferral_of(weight, _WeightGradient)
    if deferral is None:
        return plain_linear(x, weight, added)
    return _LinearStep.apply(x, added, weight.detach(), *deferral)


def plain_linear(x: Tensor, weight: Tensor, added: Tensor | None = None) -> Tensor:
    """Return x Wᵀ (+ added)."""
    if not torch.is_grad_enabled():
        product = linear(x, weight)
        return product if added is None else product.add_(added)
    return x @ weight.t() if added is None else torch.addmm(added, x, weight.t())


def arena_of(weight: Tensor) -> GradientArena | None:
    """Return the arena for the gradients of ``loop_linear``'s outputs; None if nothing is deferred."""
    deferral = deferral_of(weight, _WeightGradient)
    return None if deferral is None else deferral[0].arena


def loop_weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return what attention reads: (B, Q, S), (B, S, D) → (B, Q, D).

    The gradient of the values is deferred inside a loop.
    """
    deferral = None if autocasts(values) else deferral_of(values, _ValuesGradient)
    if deferral is None:
        return torch.bmm(weights, values)
    return _WeightedSumStep.apply(weights, values.detach(), *deferral)


def _linear_loop(x: Tensor, weight: Tensor, added: Tensor) -> Tensor:
    with deferred_gradients():
        steps = [loop_linear(*step) for step in zip(x, [weight] * len(x), added, strict=True)]
        return torch.stack([*steps, *(loop_linear(step, weight) for step in x)])


def _weighted_sum_loop(weights: Tensor, values: Tensor) -> Tensor:
    with deferred_gradients():
        return torch.stack([loop_weighted_sum(step, values) for step in weights])


def _linear_inputs() -> Iterator[tuple[Any, ...]]:
    yield sample(4, 2, 3), sample(5, 3), sample(4, 2, 5)


def _weighted_sum_inputs() -> Iterator[tuple[Any, ...]]:
    yield sample(4, 2, 1, 6), sample(2, 6, 3)


TWINS = (
    Twin(
        _linear_loop,
        lambda x, weight, added: torch.stack(
            [*map(plain_linear, x, [weight] * 4, added), *map(plain_linear, x, [weight] * 4)]
        ),
        _linear_inputs,
    ),
    Twin(
        _weighted_sum_loop,
        lambda weights, values: torch.stack([torch.bmm(step, values) for step in weights]),
        _weighted_sum_inputs,
    ),
)
