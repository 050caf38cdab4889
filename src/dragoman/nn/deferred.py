"""Products for loops over time: the gradient of what every step uses is made once at the end, not once a step.

Inside ``deferred_gradients()`` a ``LoopLinear`` keeps its inputs and the gradients of its outputs, and multiplies them
once, when the last use has been passed back; ``loop_read`` does so with the values that attention reads. Summing a
large gradient at every step would cost as much memory traffic as the step itself. Outside they are ordinary products,
and the results are the same up to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dragoman.nn.joined_steps import Room, joined
from dragoman.nn.precision import autocasts, full_precision


class Ledger(ABC):
    """The uses of one tensor in one loop, and what is made of it once for all of them."""

    def __init__(self, used: Tensor) -> None:
        self.used = used  # kept alive, because ledgers are found by its identity
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor] = []

    @abstractmethod
    def close(self) -> tuple[Tensor, ...]:
        """The gradients of the tensors it was opened with, now that every use has been passed back."""

    def taken(self, dim: int) -> tuple[Tensor, Tensor]:
        """Inputs and gradients of all steps, which came from the last to the first."""
        found = torch.cat(self.inputs[::-1], dim), joined(self.gradients[::-1], dim)
        self.inputs.clear()
        self.gradients.clear()
        return found


class _Open(torch.autograd.Function):
    """Stands between tensors and their uses, each of which takes its token: autograd runs its backward after theirs.

    The ledger must not hold the token, which holds the ledger: such a ring would stay in memory.
    """

    @staticmethod
    def forward(ctx: Any, ledger: Ledger, *used: Tensor) -> Tensor:
        ctx.ledger = ledger
        return used[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.ledger.close()


class _Weight(Ledger):
    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.room = Room()  # for whoever makes the gradients of its outputs
        # products with few rows want the weight as (in, out): turned round once, not inside of every step's product
        self.turned = weight.detach().t().contiguous()

    def close(self) -> tuple[Tensor, ...]:
        inputs, gradients = self.taken(0)  # (T * rows, in), (T * rows, out)
        return (gradients.t() @ inputs,)


class _UseWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, ledger: _Weight, token: Tensor) -> Tensor:
        ctx.ledger, ctx.weight, ctx.has_added = ledger, weight, added is not None
        ctx.x = x
        ledger.room.steps += 1
        return x @ ledger.turned if added is None else torch.addmm(added, x, ledger.turned)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        ctx.ledger.inputs.append(ctx.x)
        ctx.ledger.gradients.append(gradient)
        return gradient @ ctx.weight, gradient if ctx.has_added else None, None, None, None


class _Values(Ledger):
    def close(self) -> tuple[Tensor, ...]:
        weights, gradients = self.taken(1)  # (B, T, S), (B, T, D)
        return (torch.bmm(weights.transpose(1, 2), gradients),)


class _UseValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, ledger: _Values, token: Tensor) -> Tensor:
        ctx.ledger, ctx.weights, ctx.values = ledger, weights, values
        return torch.bmm(weights, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.ledger.inputs.append(ctx.weights)
        ctx.ledger.gradients.append(gradient)
        return torch.bmm(gradient, ctx.values.transpose(1, 2)), None, None, None


_ledgers: ContextVar[dict[tuple[type[Ledger], int], tuple[Any, Tensor]] | None] = ContextVar("ledgers", default=None)
Kind = TypeVar("Kind", bound=Ledger)


@contextmanager
def deferred_gradients() -> Iterator[None]:
    reset = _ledgers.set({})
    try:
        yield
    finally:
        _ledgers.reset(reset)


def ledger_of(used: Tensor, kind: type[Kind], *beside: Tensor) -> tuple[Kind, Tensor] | None:
    """The ledger of a tensor in this loop and its token, opened at its first use; None where nothing is deferred.

    ``beside`` are tensors that always come with it, and whose gradients the ledger makes too.
    """
    ledgers = _ledgers.get()
    if ledgers is None or not (torch.is_grad_enabled() and used.requires_grad):
        return None
    key = (kind, id(used))
    if key not in ledgers:
        ledger = kind(used, *beside)
        ledgers[key] = ledger, _Open.apply(ledger, used, *beside)
    return ledgers[key]


@full_precision
def loop_linear(x: Tensor, weight: Tensor, added: Tensor | None = None) -> Tensor:
    """x @ weight.T (+ added), x of shape (rows, in). The weight's gradient is deferred inside a loop."""
    opened = ledger_of(weight, _Weight)
    if opened is None:
        return x @ weight.t() if added is None else torch.addmm(added, x, weight.t())
    return _UseWeight.apply(x, added, weight.detach(), *opened)


def room_of(weight: Tensor) -> Room | None:
    """Where gradients of ``loop_linear``'s outputs are best put; None where nothing is deferred."""
    opened = ledger_of(weight, _Weight)
    return None if opened is None else opened[0].room


def loop_read(weights: Tensor, values: Tensor) -> Tensor:
    """(B, Q, S), (B, S, D) → (B, Q, D): what attention reads. The gradient of the values is deferred inside a loop."""
    opened = None if autocasts(values) else ledger_of(values, _Values)
    if opened is None:
        return torch.bmm(weights, values)
    return _UseValues.apply(weights, values.detach(), *opened)


class LoopLinear(nn.Linear):
    """A linear layer that may be called once a step."""

    def forward(self, x: Tensor) -> Tensor:
        flat = loop_linear(x.reshape(-1, x.shape[-1]), self.weight)
        if self.bias is not None:
            flat = flat + self.bias
        return flat.view(*x.shape[:-1], -1)
