"""The score of additive attention, v · tanh(q + k), for all queries and keys, fast on a CPU.

tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is four times as fast as its tanh there. The large
tensor (B, Q, S, K) exists once and is passed over as few times as possible. In a loop over time the
keys are doubled once, and their gradient is summed in one place and scaled once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dragoman.nn.kernels._precision import autocasts, full_precision
from dragoman.nn.kernels._switch import Twin, is_fast, sample
from dragoman.nn.kernels.deferred import DeferredGradient, deferral_of, deferred_gradients


class _AdditiveScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        doubled = (query[:, :, None] + keys[:, None]).mul_(2)  # (B, Q, S, K)
        gates = doubled.sigmoid_()
        ctx.save_for_backward(gates, vector)
        scores = gates.view(-1, gates.shape[-1]) @ (2 * vector)
        return scores.view(gates.shape[:-1]) - vector.sum()  # (B, Q, S)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates, vector = ctx.saved_tensors
        flat = gradient.reshape(-1)
        # d tanh / d x = 4 gates (1 - gates); d score / d v = 2 gates - 1
        to_vector = 2 * (flat @ gates.view(-1, gates.shape[-1])) - flat.sum()
        slope = torch.addcmul(gates, gates, gates, value=-1)
        slope = slope.mul_(gradient[..., None]).mul_(4 * vector)  # (B, Q, S, K)
        to_query = slope.sum(2)
        to_keys = slope[:, 0] if slope.shape[1] == 1 else slope.sum(1)
        return to_query, to_keys, to_vector


@full_precision
def additive_score(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Return v · tanh(q + k). query (B, Q, K), keys (B, S, K), vector (K,) → (B, Q, S)."""
    if not is_fast():
        return plain_additive_score(query, keys, vector)
    if not torch.is_grad_enabled():
        gates = torch.add((keys * 2)[:, None], query[:, :, None], alpha=2).sigmoid_()  # (B, Q, S, K)
        return (gates @ (2 * vector)).sub_(vector.sum())
    return _AdditiveScore.apply(query, keys, vector)


def plain_additive_score(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Return v · tanh(q + k)."""
    return torch.tanh(query[:, :, None] + keys[:, None]) @ vector  # (B, Q, S, K) @ (K,)


class _KeysGradient(DeferredGradient):
    """The gradients of keys (B, S, K) and of the vector, summed over the steps of a loop."""

    def __init__(self, keys: Tensor, vector: Tensor) -> None:
        super().__init__(keys)
        self.doubled = keys.detach() * 2  # (B, S, K)
        self.slope = torch.empty_like(self.doubled)  # of one step: every step writes here, so that it stays cached
        v = vector.detach()
        self.vector_times_2, self.vector_times_4, self.vector_sum = 2 * v, 4 * v, v.sum()
        self.to_keys: Tensor | None = None  # Σ_t gradient_t gates_t (1 - gates_t)

    def clear(self) -> None:
        """Set all sums to zero, at the begin of a backward pass."""
        batch, _, width = self.doubled.shape
        self.to_keys = torch.zeros_like(self.doubled)
        self.weighted_gates = self.doubled.new_zeros(batch, 1, width)  # Σ_t Σ_j gradient_tj gates_tj
        self.gradient_sum = self.doubled.new_zeros(())  # Σ_t Σ_j gradient_tj

    def compute(self) -> tuple[Tensor, ...]:
        assert self.to_keys is not None
        to_keys, self.to_keys = self.to_keys, None
        return to_keys.mul_(self.vector_times_4), 2 * self.weighted_gates.sum((0, 1)) - self.gradient_sum


class _AdditiveScoreStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, deferred: _KeysGradient, token: Tensor) -> Tensor:
        gates = torch.add(deferred.doubled, query, alpha=2).sigmoid_()  # (B, S, K)
        ctx.save_for_backward(gates)
        ctx.deferred = deferred
        scores = torch.mv(gates.view(-1, gates.shape[-1]), deferred.vector_times_2)
        return scores.sub_(deferred.vector_sum).view(len(gates), 1, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (gates,) = ctx.saved_tensors
        deferred = ctx.deferred
        if deferred.to_keys is None:
            deferred.clear()
        slope = torch.addcmul(gates, gates, gates, value=-1, out=deferred.slope)
        deferred.to_keys.addcmul_(slope, gradient.transpose(1, 2))
        deferred.weighted_gates.add_(torch.bmm(gradient, gates))
        deferred.gradient_sum.add_(gradient.sum())
        return torch.bmm(gradient, slope).mul_(deferred.vector_times_4), None, None


def loop_additive_score(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Return ``additive_score`` for keys that every step of a loop uses.

    The gradients of the keys and the vector are deferred inside a loop.
    """
    can_defer = query.shape[1] == 1 and vector.requires_grad and not autocasts(keys)
    deferral = deferral_of(keys, _KeysGradient, vector) if can_defer else None
    if deferral is None:
        return additive_score(query, keys, vector)
    return _AdditiveScoreStep.apply(query, *deferral)


def _score_loop(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    with deferred_gradients():
        return torch.cat([loop_additive_score(step, keys, vector) for step in query.split(1, 1)], 1)


def _inputs() -> Iterator[tuple[Any, ...]]:
    for queries in (1, 4):
        yield sample(2, queries, 3), sample(2, 5, 3), sample(3)


TWINS = (Twin(additive_score, plain_additive_score, _inputs), Twin(_score_loop, plain_additive_score, _inputs))
