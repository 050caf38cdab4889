"""v · tanh(q + k) for all pairs of queries and keys, fast on a CPU.

tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is four times as fast as its tanh there. The big tensor
(B, Q, S, K) is touched as few times as can be, and lives once. In a loop over time the keys are doubled once, and their
gradient is added up in one place and scaled once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dragoman.nn.deferred import Ledger, ledger_of
from dragoman.nn.precision import autocasts, full_precision


def start_vector(width: int) -> nn.Parameter:
    vector = torch.empty(width)
    nn.init.uniform_(vector, -(width**-0.5), width**-0.5)
    return nn.Parameter(vector)


class _MLPScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        summed = (query[:, :, None] + keys[:, None]).mul_(2)  # (B, Q, S, K)
        gates = summed.sigmoid_()
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
def mlp_score(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """(B, Q, K), (B, S, K), (K,) → (B, Q, S)."""
    return _MLPScore.apply(query, keys, vector)


class _Keys(Ledger):
    def __init__(self, keys: Tensor, vector: Tensor) -> None:
        super().__init__(keys)
        self.doubled = keys.detach() * 2  # (B, S, K)
        self.slope = torch.empty_like(self.doubled)  # of one step, in a place that stays in the cache
        v = vector.detach()
        self.twice, self.four_times, self.whole = 2 * v, 4 * v, v.sum()
        self.to_keys: Tensor | None = None  # Σ_t gradient_t gates_t (1 - gates_t)

    def clear(self) -> None:
        batch, _, width = self.doubled.shape
        self.to_keys = torch.zeros_like(self.doubled)
        self.seen = self.doubled.new_zeros(batch, 1, width)  # Σ_t Σ_j gradient_tj gates_tj
        self.given = self.doubled.new_zeros(())  # Σ_t Σ_j gradient_tj

    def close(self) -> tuple[Tensor, ...]:
        assert self.to_keys is not None
        to_keys, self.to_keys = self.to_keys, None
        return to_keys.mul_(self.four_times), 2 * self.seen.sum((0, 1)) - self.given


class _UseKeys(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, ledger: _Keys, token: Tensor) -> Tensor:
        gates = torch.add(ledger.doubled, query, alpha=2).sigmoid_()  # (B, S, K)
        ctx.save_for_backward(gates)
        ctx.ledger = ledger
        scores = torch.mv(gates.view(-1, gates.shape[-1]), ledger.twice)
        return scores.sub_(ledger.whole).view(len(gates), 1, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (gates,) = ctx.saved_tensors
        ledger = ctx.ledger
        if ledger.to_keys is None:
            ledger.clear()
        slope = torch.addcmul(gates, gates, gates, value=-1, out=ledger.slope)
        ledger.to_keys.addcmul_(slope, gradient.transpose(1, 2))
        ledger.seen.add_(torch.bmm(gradient, gates))
        ledger.given.add_(gradient.sum())
        return torch.bmm(gradient, slope).mul_(ledger.four_times), None, None


def loop_mlp_score(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """``mlp_score`` of keys that every step uses: their gradient and the vector's are deferred inside a loop."""
    alone = query.shape[1] == 1 and vector.requires_grad and not autocasts(keys)
    opened = ledger_of(keys, _Keys, vector) if alone else None
    if opened is None:
        return mlp_score(query, keys, vector)
    return _UseKeys.apply(query, *opened)
