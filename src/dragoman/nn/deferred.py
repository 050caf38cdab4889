"""Products for loops over time: the gradient of what every step uses is made once at the end, not once a step.

Inside ``deferred_gradients()`` a ``LoopLinear`` keeps its inputs and the gradients of its outputs, and multiplies them
once, when the last use has been passed back; ``loop_read`` does so with the values that attention reads. Summing a
large gradient at every step would cost as much memory traffic as the step itself. Outside they are ordinary products,
and the results are the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dragoman.nn.precision import autocasts, full_precision


class Ledger:
    """The uses of one tensor in one loop, and what is made of it once for all of them."""

    def __init__(self, used: Tensor) -> None:
        self.used = used  # kept alive, because ledgers are found by its identity
        self.token: Tensor | None = None  # each use takes it, so that the gradient is made after the last of them
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor] = []


class _Weight(Ledger):
    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        # products with few rows want the weight as (in, out): turned round once, not inside of every step's product
        self.turned = weight.detach().t().contiguous()
        self.token = _OpenWeight.apply(weight, self)


class _OpenWeight(torch.autograd.Function):
    """Stands between the weight and its uses. Autograd runs its backward after that of every use."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ledger: Ledger) -> Tensor:
        ctx.ledger = ledger
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        ledger = ctx.ledger
        gradient = torch.cat(ledger.gradients).t() @ torch.cat(ledger.inputs)
        ledger.gradients.clear()
        ledger.inputs.clear()
        return gradient, None


class _UseWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, token: Tensor, ledger: _Weight) -> Tensor:
        ctx.ledger, ctx.weight, ctx.has_added = ledger, weight, added is not None
        ctx.x = x
        return x @ ledger.turned if added is None else torch.addmm(added, x, ledger.turned)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        ctx.ledger.inputs.append(ctx.x)
        ctx.ledger.gradients.append(gradient)
        return gradient @ ctx.weight, gradient if ctx.has_added else None, None, None, None


class _Values(Ledger):
    def __init__(self, values: Tensor) -> None:
        super().__init__(values)
        self.token = _OpenValues.apply(values, self)


class _OpenValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, ledger: Ledger) -> Tensor:
        ctx.ledger = ledger
        return values.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        ledger = ctx.ledger
        weights, gradients = torch.cat(ledger.inputs, 1), torch.cat(ledger.gradients, 1)  # (B, T, S), (B, T, D)
        ledger.gradients.clear()
        ledger.inputs.clear()
        return torch.bmm(weights.transpose(1, 2), gradients), None


class _UseValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, token: Tensor, ledger: Ledger) -> Tensor:
        ctx.ledger, ctx.weights, ctx.values = ledger, weights, values
        return torch.bmm(weights, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.ledger.inputs.append(ctx.weights)
        ctx.ledger.gradients.append(gradient)
        return torch.bmm(gradient, ctx.values.transpose(1, 2)), None, None, None


_ledgers: ContextVar[dict[tuple[type[Ledger], int], Any] | None] = ContextVar("ledgers", default=None)
Kind = TypeVar("Kind", bound=Ledger)


@contextmanager
def deferred_gradients() -> Iterator[None]:
    reset = _ledgers.set({})
    try:
        yield
    finally:
        _ledgers.reset(reset)


def ledger_of(used: Tensor, kind: type[Kind], *beside: Tensor) -> Kind | None:
    """The ledger of a tensor in this loop, opened at its first use; None where its gradient is not deferred.

    ``beside`` are tensors that always come with it."""
    ledgers = _ledgers.get()
    if ledgers is None or not (torch.is_grad_enabled() and used.requires_grad):
        return None
    key = (kind, id(used))
    if key not in ledgers:
        ledgers[key] = kind(used, *beside)
    found: Kind = ledgers[key]
    return found


@full_precision
def loop_linear(x: Tensor, weight: Tensor, added: Tensor | None = None) -> Tensor:
    """x @ weight.T (+ added), x of shape (rows, in). The weight's gradient is deferred inside a loop."""
    ledger = ledger_of(weight, _Weight)
    if ledger is None:
        return x @ weight.t() if added is None else torch.addmm(added, x, weight.t())
    return _UseWeight.apply(x, added, weight.detach(), ledger.token, ledger)


def loop_read(weights: Tensor, values: Tensor) -> Tensor:
    """(B, Q, S), (B, S, D) → (B, Q, D): what attention reads. The gradient of the values is deferred inside a loop."""
    ledger = None if autocasts(values) else ledger_of(values, _Values)
    if ledger is None:
        return torch.bmm(weights, values)
    return _UseValues.apply(weights, values.detach(), ledger.token, ledger)


class LoopLinear(nn.Linear):
    """A linear layer that may be called once a step."""

    def forward(self, x: Tensor) -> Tensor:
        flat = loop_linear(x.reshape(-1, x.shape[-1]), self.weight)
        if self.bias is not None:
            flat = flat + self.bias
        return flat.view(*x.shape[:-1], -1)
