"""Linear layers for loops over time: the weight's gradient is one product at the end, not one a step.

Inside ``deferred_gradients()`` a ``LoopLinear`` keeps its inputs and the gradients of its outputs, and multiplies them
once, when the last use has been passed back. Summing a large weight gradient at every step would cost as much
memory traffic as the step itself. Outside it is an ordinary linear layer, and the results are the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.nn.precision import full_precision


class _Ledger:
    """The uses of one weight in one loop."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.token: Tensor | None = None
        self.weight: Tensor | None = None  # kept alive, because ledgers are found by its identity


class _Open(torch.autograd.Function):
    """Stands between the weight and its uses. Autograd runs its backward after that of every use."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ledger: _Ledger) -> Tensor:
        ctx.ledger = ledger
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        ledger = ctx.ledger
        gradient = torch.cat(ledger.gradients).t() @ torch.cat(ledger.inputs)
        ledger.gradients.clear()
        ledger.inputs.clear()
        return gradient, None


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, token: Tensor, ledger: _Ledger) -> Tensor:
        ctx.ledger, ctx.weight, ctx.has_added = ledger, weight, added is not None
        ctx.x = x
        return x @ weight.t() if added is None else torch.addmm(added, x, weight.t())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, Tensor, None]:
        ctx.ledger.inputs.append(ctx.x)
        ctx.ledger.gradients.append(gradient)
        added = gradient if ctx.has_added else None
        return gradient @ ctx.weight, added, None, gradient.new_zeros(()), None


_ledgers: ContextVar[dict[int, _Ledger] | None] = ContextVar("ledgers", default=None)


@contextmanager
def deferred_gradients() -> Iterator[None]:
    reset = _ledgers.set({})
    try:
        yield
    finally:
        _ledgers.reset(reset)


@full_precision
def loop_linear(x: Tensor, weight: Tensor, added: Tensor | None = None) -> Tensor:
    """x @ weight.T (+ added), x of shape (rows, in). The weight's gradient is deferred inside a loop."""
    ledgers = _ledgers.get()
    if ledgers is None or not (torch.is_grad_enabled() and weight.requires_grad):
        return x @ weight.t() if added is None else torch.addmm(added, x, weight.t())
    ledger = ledgers.get(id(weight))
    if ledger is None:
        ledger = ledgers[id(weight)] = _Ledger()
        ledger.weight = weight
        ledger.token = _Open.apply(weight, ledger)
    return _Use.apply(x, added, weight.detach(), ledger.token, ledger)


class LoopLinear(nn.Linear):
    """A linear layer that may be called once a step."""

    def forward(self, x: Tensor) -> Tensor:
        flat = loop_linear(x.reshape(-1, x.shape[-1]), self.weight)
        if self.bias is not None:
            flat = flat + self.bias
        return flat.view(*x.shape[:-1], -1)
